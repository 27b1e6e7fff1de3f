"""What was measured of the recommended file: answer 7, and the prediction's errors. Pure."""

import statistics

from vllm_spec_plugin.tools.planner.predicting import predict
from vllm_spec_plugin.tools.planner.results import Results
from vllm_spec_plugin.tools.planner.samples import NONE
from vllm_spec_plugin.tools.planner.verifying import RECOMMENDED
from vllm_spec_plugin.tools.report.measurements import Spread, show_spread
from vllm_spec_plugin.tools.report.table import Table


def time_per_request(results: Results) -> Table:
    """Times to first token and per token, without and with the best candidate."""
    title = f"7. Times of a request without and with {results.choice.candidate.name}, ms"
    header = ("streams", "TTFT without", "TTFT with", "TPOT without", "TPOT with")
    note = "TTFT: time to the first token; TPOT: time per token after it."
    rows: list[tuple[str, ...]] = []
    if not results.verified:
        for level, best in results.choice.best.items():
            plain = predict(results.choice.costs[level], results.choice.loads, 0)
            expected = (plain.ttft, best.ttft, plain.tpot, best.tpot)
            rows.append((str(level), *(f"{1e3 * seconds:.2f}" for seconds in expected)))
        return Table(title, header, tuple(rows), f"Expected, not measured. {note}")
    for level, found in results.verified.items():
        measured = (times[arm] for times in (found.ttft, found.tpot) for arm in (NONE, RECOMMENDED))
        rows.append(
            (str(level), *(show_spread(spread, 1e3, 1 if _is_above(spread, 0.1) else 2) for spread in measured))
        )
    return Table(title, header, tuple(rows), f"Medians of requests, ± half the distance of quartiles. {note}")


def verification(results: Results) -> Table:
    """The prediction against what was measured."""
    rows = []
    for level, found in results.verified.items():
        best = results.choice.best[level]
        speeds = [statistics.median(found.tokens_per_second[arm].values()) for arm in (NONE, RECOMMENDED)]
        tpot = found.tpot[RECOMMENDED]
        rows.append(
            (
                str(level),
                *(f"{speed:.{0 if speed >= 100 else 1}f}" for speed in speeds),
                show_spread(found.speedup),
                f"{best.speedup:.2f}",
                f"{best.speedup / found.speedup.median - 1:+.0%}",
                "-" if tpot is None else f"{best.tpot / tpot.median - 1:+.0%}",
                f"{found.draft_length:.1f}",
            )
        )
    header = ("streams", "off, tok/s", "on, tok/s", "ratio", "predicted", "error", "TPOT error", "drafted")
    note = (
        "In a closed loop of the prompts, in turns; medians of rounds, ± half the distance of quartiles. errors: of "
        "the prediction, over what was measured; drafted: tokens per request and step, as the policy chose."
    )
    return Table(f"Verification: {results.choice.candidate.name} against no speculation", header, tuple(rows), note)


def _is_above(spread: Spread | None, limit: float) -> bool:
    return spread is not None and spread.median >= limit
