"""Runs under load made by hand."""

from collections.abc import Mapping, Sequence

from vllm_spec_tools.bench.arms import NONE, OPTIMAL, PlannedArm
from vllm_spec_tools.bench.engine_args import ArmPlan
from vllm_spec_tools.bench.load.sweep import Agreement, SweepResults, results_of
from vllm_spec_tools.bench.load.workloads import EASY, SWITCHING
from vllm_spec_tools.bench.records import Cell, LoadAnswer, LoadOutput, LoadRun, PhaseAnswer, Progress

K_1, K_4, STOCK = "fixed K = 1", "fixed K = 4", "vLLM's ngram, K = 4"
ARMS = {
    NONE: PlannedArm(ArmPlan(None)),
    K_1: PlannedArm(ArmPlan("fixed.yaml"), 1, is_fixed=True),
    K_4: PlannedArm(ArmPlan("fixed.yaml"), 4, is_fixed=True),
    OPTIMAL: PlannedArm(ArmPlan("optimal.yaml")),
    STOCK: PlannedArm(ArmPlan({"method": "ngram"}), is_stock=True),
}
# Tokens per second at 1 and 8 streams: K = 4 is best at 1, K = 1 at 8.
RATES = {NONE: (20.0, 100.0), K_1: (30.0, 110.0), K_4: (50.0, 80.0), OPTIMAL: (49.0, 109.0), STOCK: (40.0, 70.0)}


def steady(
    rate: float,
    num_tokens: int = 100,
    request_steps: int = 40,
    outputs: Sequence[LoadOutput] = (),
) -> Progress:
    """A phase of steps of 10 tokens at `rate` tokens per second; a request waits two tokens' time for its first one."""
    counts = range(10, num_tokens + 1, 10)
    seconds = [count / rate for count in counts]
    ttft = [1 / rate, 2 / rate, 9 / rate]
    return Progress(seconds, list(counts), request_steps, ttft, [1 / rate], [20 / rate], [*outputs])


def windows(rates: Sequence[float], tokens: int = 50) -> Progress:
    """A phase with a step per window of so many tokens."""
    seconds, moment = [], 0.0
    for rate in rates:
        moment += tokens / rate
        seconds.append(moment)
    return Progress(seconds, [tokens * (place + 1) for place in range(len(rates))], 40)


def run(
    arm: str,
    progress: Sequence[Progress],
    *,
    workload: str = EASY,
    streams: int = 1,
    number: int = 0,
    counts: tuple[int, int, int] = (0, 0, 0),
) -> LoadRun:
    """A run; drafts, drafted and accepted tokens of each phase are `counts`."""
    return LoadRun(arm, (workload, streams), number, LoadAnswer(1.0, [PhaseAnswer(p, *counts) for p in progress]), 0.1)


def results(rounds: int = 3, agreements: Mapping[tuple[str, str, int], Agreement] | None = None) -> SweepResults:
    """Every arm at 1 and 8 streams of easy text, and the switching workload with 1 stream."""
    runs = []
    for number in range(rounds):
        speed = 1 + 0.02 * number
        for arm, levels in RATES.items():
            counts = (0, 0, 0) if arm == NONE else (40, 160, 100)
            for streams, rate in zip((1, 8), levels, strict=True):
                progress = [steady(rate * speed)]
                runs.append(run(arm, progress, streams=streams, number=number, counts=counts))
            phases = [windows((rate, rate, rate)) for rate in (levels[0], levels[1], levels[0])]
            runs.append(run(arm, phases, workload=SWITCHING, number=number, counts=counts))
    cells: list[Cell] = [(EASY, 1), (EASY, 8), (SWITCHING, 1)]
    return results_of(runs, ARMS, cells, agreements or {})
