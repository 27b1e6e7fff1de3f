"""Fuzzes servers that draft, and writes the counts into docs/parameters.md: `python -m tests.e2e.fuzz [--only ...]`."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from tests.e2e.fuzz.servers import SERVERS
from tests.e2e.fuzz.serving import SEED, serve_and_fuzz
from tests.engine.exact import Reference
from tests.parameters.page import PAGE, RESULTS, with_tables
from vllm_spec_tools.report.provenance import provenance


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzzes servers and writes the results after each; status 1 if one has faults."""
    parser = argparse.ArgumentParser(prog="tests.e2e.fuzz", description=__doc__)
    parser.add_argument("--only", default="", help=f"servers, separated by commas; of: {', '.join(SERVERS)}")
    parser.add_argument("--requests", type=int, default=2000, help="number of requests to each")
    parser.add_argument("--seed", type=int, default=SEED, help="of the requests")
    parser.add_argument("--page", action="store_true", help="run nothing, write the page")
    options = parser.parse_args(arguments)
    names = [] if options.page else [name for name in options.only.split(",") if name] or list(SERVERS)
    if unknown := set(names) - SERVERS.keys():
        parser.error(f"--only: unknown servers {', '.join(sorted(unknown))}; allowed: {', '.join(SERVERS)}")
    has_faults = False
    for name in names:
        has_faults |= not _run(name, options.requests, options.seed)
    PAGE.write_text(with_tables(PAGE.read_text(), json.loads(RESULTS.read_text())))
    return int(has_faults)


def _run(name: str, size: int, seed: int) -> bool:
    """Fuzzes a server, and adds its counts to the results if it has no fault."""
    start, folder = time.perf_counter(), Path(tempfile.mkdtemp(prefix="fuzz-"))
    outcome = serve_and_fuzz(name, size, Reference(), folder, seed)
    seconds = round(time.perf_counter() - start)
    print(f"{name}: {size} requests in {seconds} s, {dict(outcome.counts)}, log: {folder}/log")
    print("\n".join(outcome.faults))
    if outcome.faults:
        return False
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    date = provenance([], 0, [])["date"][:10]
    row = {"requests": size, "seed": seed, "seconds": seconds, "date": date, **outcome.counts}
    row["unrepeated"] = len(outcome.unrepeated)
    of_version = results.setdefault(version("vllm").partition("+")[0], {})
    of_version[name] = row
    RESULTS.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")
    return True


if __name__ == "__main__":
    sys.exit(main())
