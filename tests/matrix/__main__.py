"""Runs the matrix and writes its page: `make matrix [VLLM=0.33.0] [ONLY=gemma3,llama_lora]`."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from packaging.version import Version

from tests.matrix.cells import ROWS, UNTESTED, WRONG
from tests.matrix.page import PAGE, RESULTS, release, render
from tests.matrix.workers import run
from vllm_spec_plugin.tools.report.provenance import provenance


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs rows and writes what came of them; 1 if a cell is wrong or untested."""
    parser = argparse.ArgumentParser(prog="tests.matrix", description=__doc__)
    parser.add_argument("--only", default="", help=f"rows, separated by commas; of: {', '.join(ROWS)}")
    parser.add_argument("--results", type=Path, help="write results here, and no page")
    parser.add_argument("--page", action="store_true", help="run nothing, write the page of the latest results")
    options = parser.parse_args(arguments)
    if options.page:
        PAGE.write_text(render(json.loads(RESULTS.read_text())))
        return 0
    names = [name for name in options.only.split(",") if name] or list(ROWS)
    if unknown := set(names) - set(ROWS):
        parser.error(f"--only: unknown rows {', '.join(sorted(unknown))}; allowed: {', '.join(ROWS)}")
    start = time.perf_counter()
    rows = run(names)
    seconds = time.perf_counter() - start
    path = options.results or RESULTS
    results = json.loads(path.read_text()) if path.exists() else {}
    # Other versions, and the other rows of an earlier run, stay.
    earlier = results[release()]["rows"] if release() in results and options.only else {}
    merged = {name: rows.get(name) or earlier[name] for name in ROWS if name in rows or name in earlier}
    came_from = {key: value for key, value in provenance([], 0, []).items() if key in ("versions", "machine")}
    results[release()] = {**came_from, "rows": merged}
    results = {each: results[each] for each in sorted(results, key=Version)}
    path.write_text(json.dumps(results, indent=1) + "\n")
    if options.results is None:
        PAGE.write_text(render(results))
    cells = [cell for row in rows.values() for cell in row["cells"].values()]
    bad = sum(cell["verdict"] in (WRONG, UNTESTED) for cell in cells)
    print(f"{len(cells)} cells in {seconds:.0f} s, {bad} of them wrong or untested; written to {path}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
