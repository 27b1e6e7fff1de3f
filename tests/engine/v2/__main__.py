"""Runs every drafter of vLLM's V2 runner on the installed vLLM, and writes docs/v2.md: `make v2 [VLLM=0.33.0]`."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.engine.arms import Arms
from tests.engine.exact import Reference
from tests.engine.jobs import CertifyRequest, Job
from tests.engine.v2.cells import FURTHER, MIN_P, SETTINGS, run_greedy, run_sampled, run_seeded
from tests.engine.v2.drafters import DRAFTERS, Target, bundled_target, engine, mtp_target
from tests.engine.v2.page import PAGE, RESULTS, with_tables
from tests.sizes import is_full
from vllm_spec_tools.engines.engine_child import EngineError
from vllm_spec_tools.report.provenance import provenance

_ROUNDS = 4 if is_full() else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs drafters and writes the results."""
    parser = argparse.ArgumentParser(prog="tests.engine.v2", description=__doc__)
    parser.add_argument("--only", default="", help=f"drafters, separated by commas; of: {', '.join(DRAFTERS)}")
    parser.add_argument("--page", action="store_true", help="run nothing, write the page of the latest results")
    options = parser.parse_args(arguments)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    names = [name for name in options.only.split(",") if name] or list(DRAFTERS)
    if unknown := set(names) - set(DRAFTERS):
        parser.error(f"--only: unknown drafters {', '.join(sorted(unknown))}; allowed: {', '.join(DRAFTERS)}")
    if not options.page:
        _run(names, results)
    PAGE.write_text(with_tables(PAGE.read_text(), json.loads(RESULTS.read_text())))
    return 0


def _run(names: Sequence[str], results: dict[str, Any]) -> None:
    """Adds to the results, and writes them after each drafter."""
    came_from = {key: value for key, value in provenance([], 0, []).items() if key in ("date", "versions", "machine")}
    of_version = results.setdefault(version("vllm").partition("+")[0], {"drafters": {}})
    of_version |= came_from
    with tempfile.TemporaryDirectory(prefix="v2-") as scratch:
        folder = Path(scratch)
        arms, bundled, mtp = Arms(folder, folder / "results"), bundled_target(Reference()), mtp_target(folder)
        try:
            for name in names:
                start = time.perf_counter()
                row = _row(arms, name, mtp if name.startswith("mtp") else bundled)
                row["seconds"] = round(time.perf_counter() - start)
                print(name, json.dumps(row), flush=True)
                rows = of_version["drafters"] | {name: row}
                of_version["drafters"] = {each: rows[each] for each in DRAFTERS if each in rows}
                RESULTS.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")
        finally:
            arms.stop()


def _row(arms: Arms, name: str, target: Target) -> dict[str, Any]:
    on = engine(name, target)
    settings = SETTINGS | FURTHER.get(name, {})

    def greedy() -> dict[str, Any]:
        result = run_greedy(arms, on, target)
        return {"accepted": result.accepted, "rejected": result.rejected}

    def sampled() -> dict[str, Any]:
        result, tests = run_sampled(arms, on, target, settings, _ROUNDS)
        p_values = {setting: test.p_value for setting, test in tests.items()}
        return {"accepted": result.accepted, "rejected": result.rejected, "p_values": p_values}

    def seeded() -> dict[str, Any]:
        result, test = run_seeded(arms, on, target)
        return {"accepted": result.accepted, "rejected": result.rejected, "p_values": {"seeds": test.p_value}}

    row = {run.__name__: _cell(run) for run in (greedy, sampled, seeded)}
    if on.config:
        (params,) = MIN_P.values()
        row["min_p"] = _cell(
            lambda: {"tokens": arms.run(on, Job([CertifyRequest(target.prompts[0], params)])).tokens()}
        )
    return row


def _cell(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return run()
    except AssertionError as error:
        return {"wrong": str(error).partition("\n")[0] or "an output differs"}
    except EngineError as error:
        return {"error": str(error).strip().splitlines()[-1].strip(" |")}


if __name__ == "__main__":
    sys.exit(main())
