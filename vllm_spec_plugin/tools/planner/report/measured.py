"""What was measured: answers 1 to 5. Pure."""

from vllm_spec_plugin.tools.planner.forecast import acceptance_of, plain_step, pooled_curve
from vllm_spec_plugin.tools.planner.memory import TARGET
from vllm_spec_plugin.tools.planner.results import Results
from vllm_spec_plugin.tools.planner.samples import NONE
from vllm_spec_plugin.tools.planner.words import streams
from vllm_spec_plugin.tools.report.table import Table


def target_step(results: Results) -> Table:
    """A step of the target without speculation."""
    samples = [sample for part in results.measured for sample in part.of(NONE)]
    rows = []
    for level in results.levels:
        seconds = plain_step([sample for sample in samples if sample.concurrency == level], level)
        rows.append((str(level), f"{1e3 * seconds:.2f}", f"{level / seconds:.4g}"))
    note = "One token per request and step; tokens/s of the steps alone, without prompts."
    return Table("1. The target's step", ("streams", "ms", "tokens/s"), tuple(rows), note)


def verification(results: Results) -> Table:
    """A step of the target by tokens per request."""
    part = results.measured[0]
    curves = {level: pooled_curve(part, level) for level in results.levels}
    plain = {level: plain_step(part.of(NONE, level), level) for level in results.levels}
    rows = []
    for length in (0, *part.engine.candidates[0].lengths):
        steps = {level: curve.at(level * (1 + length)) for level, curve in curves.items()}
        cells = (f"{1e3 * step:.2f} ({step / plain[level]:.2f}x)" for level, step in steps.items())
        rows.append((str(1 + length), *cells))
    header = ("tokens per request", *map(streams, results.levels))
    note = (
        f"In the engine of {part.engine.name}, without the drafting; in brackets over a step without speculation, in "
        "turns with which it was measured."
    )
    return Table("2. Verification: ms of a step by the tokens in it", header, tuple(rows), note)


def drafting(results: Results) -> Table:
    """What drafting takes in a step."""
    rows = []
    for forecast in results.forecasts:
        costs = [cost.drafting for cost in forecast.costs.values()]
        cells = [f"{1e3 * cost.fixed:.2f}" + (f" + {1e3 * cost.token:.2f} K" if cost.token else "") for cost in costs]
        rows.append((forecast.candidate.name, *cells))
    note = "For all requests of a step together, K tokens each; on average also over steps without a guess."
    return Table("3. Drafting: ms per step", ("proposer", *map(streams, results.levels)), tuple(rows), note)


def acceptance(results: Results) -> Table:
    """Lists acceptance by workload and position."""
    rows = []
    for part in results.measured:
        for candidate in part.engine.candidates:
            longest = candidate.lengths[-1]
            for workload in results.workloads:
                found = acceptance_of(part, candidate, longest, workload.name)
                rows.append(
                    (
                        candidate.name,
                        workload.name,
                        f"{100 * found.draft_share:.0f}",
                        " ".join(f"{100 * rate:.0f}" for rate in found.rates) if found.drafts else "-",
                        "-" if found.length is None else f"{found.length:.2f}",
                        f"{found.tokens_per_step:.2f}",
                    )
                )
    header = ("proposer", "workload", "drafts, %", "alpha by position, %", "length", "per step")
    note = (
        "Drafts have the longest measured length. drafts: share of steps with a draft; alpha: share of a position (in "
        "trees a level) accepted where all earlier ones were; length: 1 + accepted / drafts; per step: output tokens."
    )
    return Table("4. Acceptance", header, tuple(rows), note, text_columns=2)


def memory(results: Results) -> Table:
    """Weights and KV cache."""
    target = results.memory[TARGET]
    rows = []
    for name, taken in results.memory.items():
        weights = "not known" if taken.weights is None else _size(taken.weights)
        if name != TARGET and taken.weights is not None and target.weights:
            weights += f" ({taken.weights / target.weights:.1%})"
        kv = _size(taken.kv_per_token)
        if name != TARGET and target.kv_per_token:
            kv += f" ({taken.kv_per_token / target.kv_per_token:.1%})"
        rows.append((name, weights, kv))
    note = "Beside the target's, in its number format; in brackets over the target's."
    return Table("5. Memory", ("", "weights", "KV per token"), tuple(rows), note)


def _size(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return str(count) if not count else f"{count} B"
