"""The sweep in words. Pure."""

from collections.abc import Iterator, Sequence

from vllm_spec_plugin.tools.bench.arm_words import OPTIMAL, stock_of
from vllm_spec_plugin.tools.bench.load.report.cells import levels_of, recovery, streams_text
from vllm_spec_plugin.tools.bench.load.summary import best_fixed, over
from vllm_spec_plugin.tools.bench.load.sweep import SweepResults
from vllm_spec_plugin.tools.bench.load.switching import RECOVERED, WINDOW
from vllm_spec_plugin.tools.bench.load.workloads import EASY, MIXED, SWITCHING

STOCK_NOTE = (
    "On CPU stock vLLM's sampled outputs are wrong with speculation (docs/design/verification.md, \"Why not vLLM's own "
    'sampler"), and so are greedy ones that share a batch with them, as in the workload mixed: its figures tell '
    "something of the workload easy only."
)


def sentences(results: SweepResults) -> Iterator[str]:
    """How even mixtures were, where `optimal` does worst and best, and how soon it recovers."""
    yield from _mixture(results)
    if OPTIMAL not in results.arms:
        return
    for workload, levels in levels_of(results).items():
        if workload != SWITCHING:
            yield _range_of_optimal(results, workload, levels)
    for streams, switch in results.switches.items():
        phases = (
            f"phase {number} ({phase.kind}) {recovery(phase, OPTIMAL)} (best: {phase.best})"
            for number, phase in enumerate(switch.phases, 1)
        )
        where = streams_text(streams)
        yield f"switching, {where}: {OPTIMAL} is near the best after so many tokens: {', '.join(phases)}."


def notes(results: SweepResults, on_cpu: bool) -> Iterator[str]:
    """What the tables are to be read with."""
    best = "best K (*): the arm of fixed draft length with the highest median at this level; " if results.fixed else ""
    yield (
        "So many requests are in flight all the time. Tokens and time count from when each stream has its first token; "
        "later prompts are in the time. Each arm did each level once in short before, which is not counted, and from "
        "which the policy learns. Medians of the "
        f"rounds, ± half the distance of their quartiles; ratios are taken round by round. {best}"
        "length: 1 + accepted / drafts; drafted: tokens per request and step that brought it something; "
        "TPOT: time per output token of a request after its first one; TTFT: from asking to the first token; of both "
        "the requests' median. "
        f"greedy: whether what was written at temperature 0 is what arm {results.reference} wrote, as far as both got; "
        "tied where they part at two tokens as likely as each other."
    )
    if results.switches:
        yield (
            f"switching: all streams turn at once, with a new request each. Windows of {WINDOW} output tokens per "
            "stream, the first one of a phase with its prompts; near best: tokens per stream before the first two "
            f"windows in a row with at least {RECOVERED:.0%} of what the arm that is fastest over the whole phase does "
            "in the same windows."
        )
    if on_cpu and stock_of(results.arms) and any(workload != EASY for workload, _ in results.cells):
        yield STOCK_NOTE


def _mixture(results: SweepResults) -> Iterator[str]:
    """When a run ends, fast arms are further with the predictable texts that are in flight."""
    shares = [
        (summary.tokens_by_kind.get(EASY, 0) / sum(summary.tokens_by_kind.values()), f"{name}, {streams_text(streams)}")
        for (name, workload, streams), summary in results.summaries.items()
        if workload == MIXED
    ]
    if shares:
        low, high = (f"{share:.0%} ({where})" for share, where in (min(shares), max(shares)))
        yield f"mixed: of the output tokens, {low} to {high} are predictable text's."


def _range_of_optimal(results: SweepResults, workload: str, levels: Sequence[int]) -> str:
    """Lowest and highest ratio over the levels, to no drafts and to the best fixed draft length."""
    best = {streams: best_fixed(results.summaries, results.fixed, workload, streams) for streams in levels}
    parts = []
    for title, others in ((results.reference, dict.fromkeys(levels, results.reference)), ("the best fixed K", best)):
        spreads = {s: over(results.summaries, OPTIMAL, others[s], workload, s) for s in levels}
        found = [(spread.median, streams) for streams, spread in spreads.items() if spread is not None]
        if found:
            low, high = (f"{ratio:.2f} ({streams_text(streams)})" for ratio, streams in (min(found), max(found)))
            parts.append(f"{low} to {high} times {title}")
    return f"{workload}: {OPTIMAL} is at {' and '.join(parts)}."
