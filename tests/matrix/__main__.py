"""Runs the matrix and writes its page: `make matrix [VLLM=0.33.0] [ONLY=gemma3,llama_lora]`."""

import argparse
import json
import sys
import time
from collections.abc import Sequence

from packaging.version import Version

from tests.matrix.cells import ROWS, UNTESTED, WRONG
from tests.matrix.page import PAGE, RESULTS, release, with_tables
from tests.matrix.running import columns_of
from tests.matrix.workers import run
from vllm_spec_tools.report.provenance import provenance


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs rows and writes the results; 1 if a cell is wrong or untested."""
    parser = argparse.ArgumentParser(prog="tests.matrix", description=__doc__)
    parser.add_argument("--only", default="", help=f"rows, separated by commas; of: {', '.join(ROWS)}")
    parser.add_argument("--page", action="store_true", help="run nothing, write the page of the latest results")
    options = parser.parse_args(arguments)
    names = [name for name in options.only.split(",") if name] or list(ROWS)
    if unknown := set(names) - set(ROWS):
        parser.error(f"--only: unknown rows {', '.join(sorted(unknown))}; allowed: {', '.join(ROWS)}")
    results, bad = json.loads(RESULTS.read_text()), 0
    if not options.page:
        start = time.perf_counter()
        rows = run({name: columns_of(name) for name in names})
        # Other versions and rows stay.
        rows = results.get(release(), {"rows": {}})["rows"] | rows
        came_from = {key: value for key, value in provenance([], 0, []).items() if key in ("versions", "machine")}
        results[release()] = {**came_from, "rows": {name: rows[name] for name in ROWS if name in rows}}
        results = {each: results[each] for each in sorted(results, key=Version)}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        cells = [cell for name in names for cell in rows[name]["cells"].values()]
        bad = sum(cell["verdict"] in (WRONG, UNTESTED) for cell in cells)
        print(f"{len(cells)} cells in {time.perf_counter() - start:.0f} s, {bad} of them wrong or untested: {RESULTS}")
    PAGE.write_text(with_tables(PAGE.read_text(), results))
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
