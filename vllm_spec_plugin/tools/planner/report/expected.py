"""What is expected: answer 6, the prediction, and what would change the answer. Pure."""

from vllm_spec_plugin.tools.planner.results import Results
from vllm_spec_plugin.tools.planner.words import streams
from vllm_spec_plugin.tools.report.table import Table


def effect(results: Results) -> Table:
    """Every candidate's best at each concurrency, and what was measured."""
    rows = []
    for forecast in results.forecasts:
        cells = (
            f"{best.speedup:.2f}x ({best.tokens} tokens)" if best.tokens else "1.00x (off)"
            for best in forecast.best.values()
        )
        rows.append((forecast.candidate.name, *cells))
    if results.verified:
        ratios = (found.speedup.median for found in results.verified.values())
        rows.append((f"{results.choice.candidate.name}, measured", *(f"{ratio:.2f}x" for ratio in ratios)))
    note = "Tokens/s over no speculation, prompts included, with the draft length that is expected to be best."
    return Table("6. Effect", ("proposer", *map(streams, results.levels)), tuple(rows), note)


def predictions(results: Results) -> Table:
    """What the effect comes from."""
    rows = []
    for forecast in results.forecasts:
        for level, best in forecast.best.items():
            name = forecast.candidate.name if level == results.levels[0] else ""
            rows.append(
                (
                    name,
                    str(level),
                    str(best.tokens),
                    f"{best.tokens_per_step:.2f}",
                    f"{1e3 * best.step_seconds:.2f}",
                    f"{1e3 * best.draft_seconds:.2f}",
                    f"{best.decode_speedup:.2f}x",
                    f"{best.speedup:.2f}x",
                    f"{1e3 * best.tpot:.2f}",
                )
            )
    header = ("proposer", "streams", "K", "per step", "step, ms", "drafting", "steps", "all", "TPOT, ms")
    note = (
        "K: best draft length, 0 is none; per step: tokens of a request; step: with drafting; steps: speedup of the "
        "steps alone, theorem 3.8 with what was measured here; all: with prompts."
    )
    return Table("Prediction", header, tuple(rows), note)


def limits(results: Results) -> Table:
    """What the best candidate could gain if one thing were other than it is."""
    choice = results.choice
    rows = tuple(
        (
            str(level),
            f"{choice.best[level].speedup:.2f}x",
            f"{found.perfect:.2f}x",
            f"{found.free_drafting:.2f}x",
            f"{found.free_verifying:.2f}x",
        )
        for level, found in choice.limits.items()
    )
    header = ("streams", "as it is", "all accepted", "drafting free", "verifying free")
    title = f"What would change the answer: {choice.candidate.name}"
    return Table(title, header, rows, "Expected tokens/s over no speculation, each with its best draft length.")
