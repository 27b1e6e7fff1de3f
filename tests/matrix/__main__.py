"""Runs the matrix and writes its page: `make matrix [VLLM=0.33.0] [ONLY=gemma3,llama_lora]`."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packaging.version import Version

from tests.matrix.cells import COLUMNS, ROWS, UNTESTED, WRONG
from tests.matrix.native import COLUMNS as NATIVE_COLUMNS
from tests.matrix.page import PAGE, RESULTS, release, with_tables
from tests.matrix.running import columns_of
from tests.matrix.workers import run
from vllm_spec_tools.report.provenance import provenance


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs rows and writes the results; 1 if a cell is wrong or untested."""
    parser = argparse.ArgumentParser(prog="tests.matrix", description=__doc__)
    parser.add_argument("--only", default="", help=f"rows, separated by commas; of: {', '.join(ROWS)}")
    columns = ("all", "own", "native", *COLUMNS)
    parser.add_argument("--columns", choices=columns, default="all", help="a group or one of them; other cells stay")
    parser.add_argument("--results", type=Path, help="write results here, and no page")
    parser.add_argument("--page", action="store_true", help="run nothing, write the page of the latest results")
    options = parser.parse_args(arguments)
    if options.page:
        PAGE.write_text(with_tables(PAGE.read_text(), json.loads(RESULTS.read_text())))
        return 0
    names = [name for name in options.only.split(",") if name] or list(ROWS)
    if unknown := set(names) - set(ROWS):
        parser.error(f"--only: unknown rows {', '.join(sorted(unknown))}; allowed: {', '.join(ROWS)}")
    start = time.perf_counter()
    rows = run({name: _columns(name, options.columns) for name in names})
    seconds = time.perf_counter() - start
    path = options.results or RESULTS
    results = json.loads(path.read_text()) if path.exists() else {}
    # Other versions, and what was not run now, stay.
    earlier = results.get(release(), {"rows": {}})["rows"]
    names = [name for name in ROWS if name in rows or name in earlier]
    merged = {name: _merged(name, earlier.get(name), rows.get(name)) for name in names}
    came_from = {key: value for key, value in provenance([], 0, []).items() if key in ("versions", "machine")}
    results[release()] = {**came_from, "rows": merged}
    results = {each: results[each] for each in sorted(results, key=Version)}
    path.write_text(json.dumps(results, indent=1) + "\n")
    if options.results is None:
        PAGE.write_text(with_tables(PAGE.read_text(), results))
    cells = [cell for row in rows.values() for cell in row["cells"].values()]
    bad = sum(cell["verdict"] in (WRONG, UNTESTED) for cell in cells)
    print(f"{len(cells)} cells in {seconds:.0f} s, {bad} of them wrong or untested; written to {path}")
    return int(bad > 0)


def _columns(name: str, which: str) -> list[str]:
    groups = {each: {"all", each, "native" if each in NATIVE_COLUMNS else "own"} for each in columns_of(name)}
    return [each for each, own in groups.items() if which in own]


def _merged(name: str, earlier: dict[str, Any] | None, row: dict[str, Any] | None) -> dict[str, Any]:
    if earlier is None or row is None:
        return row or earlier or {}
    left = set(columns_of(name)) - row["cells"].keys()
    kept = {column: cell for column, cell in earlier["cells"].items() if column in left}
    seconds = row["seconds"] + sum(cell["seconds"] for cell in kept.values())
    return {**row, "seconds": round(seconds, 1), "cells": {**kept, **row["cells"]}}


if __name__ == "__main__":
    sys.exit(main())
