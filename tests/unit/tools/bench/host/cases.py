"""Runs of the host-time benchmark made by hand."""

from vllm_spec_plugin.tools.bench.host.comparison import TARGETS, Cell, figures
from vllm_spec_plugin.tools.bench.host.parts import DRAFT, FORWARD, PARTS, SAMPLER
from vllm_spec_plugin.tools.bench.host.records import HostAnswer
from vllm_spec_plugin.tools.bench.rounds import Results, Run, results_of

NONE, OURS = "no speculation", "draft model, K = 4"
CELLS: list[Cell] = [(False, 1), (False, 32), (True, 1), (True, 32)]


def answer(host: float, *, drafted: float = 0.0, forward: float = 0.0) -> HostAnswer:
    """Three steps, of which the median counts; a tenth of the host time is sampling, with a draft model as long."""
    draft = 0.002 if drafted else 0.0
    parts = dict.fromkeys(PARTS, 0.0) | {SAMPLER: host / 10, DRAFT: draft, FORWARD: forward}
    step = host + draft + forward
    return HostAnswer(
        1.0,
        [2 * step, 9.0, 0.0],
        [step, 9.0, 0.0],
        [host, 9.0, 0.0],
        {part: [2 * seconds] * 3 for part, seconds in parts.items()},
        {part: [seconds] * 3 for part, seconds in parts.items()},
        1 + 0.75 * drafted,
        drafted,
    )


def results(rounds: int = 2) -> Results[Cell]:
    """No speculation has 1 ms of host time, and 2 in the second round; ours 0.5 ms more, and 0.7."""
    runs: list[Run[Cell, HostAnswer]] = []
    for cell in CELLS:
        forward = 0.01 if cell[0] else 0.0
        for number, (none, ours) in enumerate([(0.001, 0.0015), (0.002, 0.0027)][:rounds]):
            runs.append(Run(NONE, cell, number, answer(none, forward=forward), 0.25))
            runs.append(Run(OURS, cell, number, answer(ours, drafted=4.0, forward=forward)))
    return results_of(runs, [NONE, OURS], CELLS, lambda cell: (TARGETS[cell[0]], cell[1]), figures)
