"""The control that learns, with one proposer of trees: it drafts as many of the most probable nodes as pay."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from tests.unit.policy.simulator import Cost, Server, alone, control_for, simulate
from vllm_spec_plugin.draft_plan import length_of
from vllm_spec_plugin.policy.control import Drafting, DraftRequest, MeasuredStep, StepBatch
from vllm_spec_plugin.policy.costs import ProposerTraits
from vllm_spec_plugin.policy.optimal import OptimalControl

SEED, STEPS, SETTLED = 7, 600, 300
# Depth of the trunk; the probability that a trunk node is right if all above it are; and that of its two siblings.
DEPTH, TRUNK, SIBLINGS = 4, 0.8, (0.1, 0.05)
# By node: what it is accepted with. The trunk comes first, then each rank of siblings from the root down.
NODES = np.concatenate([prob * TRUNK ** np.arange(DEPTH) for prob in (TRUNK, *SIBLINGS)])
# Seconds of a step by its tokens: a GPU that waits for memory; one that takes a little, or much, for each token.
STEPS_BY_KIND: dict[str, Callable[[float], float]] = {
    "cheap": lambda n: 0.020 * max(1.0, n / 64),
    "fair": lambda n: 0.020 * (1 + 0.03 * (n - 1)),
    "expensive": lambda n: 0.020 * (1 + 0.25 * (n - 1)),
}


COST = Cost(0.0, 1e-5, 1e-4)


def drafting_seconds(num_nodes: int) -> float:
    return COST.any_seconds + COST.row_seconds * num_nodes if num_nodes else 0.0


def true_rate(kind: str, num_nodes: int) -> float:
    """Expected output tokens per second of drafts of that size."""
    return (1 + NODES[:num_nodes].sum()) / (STEPS_BY_KIND[kind](1 + num_nodes) + drafting_seconds(num_nodes))


def accepted_nodes(rng: np.random.Generator, num_nodes: int) -> tuple[int, ...]:
    """The nodes that a text follows: along the trunk, and where it leaves it to a sibling or to none."""
    depth = 0
    while depth < DEPTH and rng.random() < TRUNK:
        depth += 1
    path = list(range(depth))
    left = rng.random() * (1 - TRUNK)
    if depth < DEPTH and left < sum(SIBLINGS):
        path.append(DEPTH * (1 if left < SIBLINGS[0] else 2) + depth)
    return tuple(node for node in path if node < num_nodes)


@cache
def sizes_of(kind: str) -> list[int]:
    """Serves one request for `STEPS` steps with noise of 5%; returns the draft sizes of the settled ones."""
    server = Server(STEPS_BY_KIND[kind], (COST,), most=len(NODES), nodes=accepted_nodes)
    outcome = simulate(control_for(server), server, lambda _: alone([TRUNK]), STEPS, SEED)
    return [length_of(draft_plan, 0) for [draft_plan] in outcome.draft_plans[SETTLED:]]


def rate(kind: str) -> float:
    """Expected output tokens per second of the settled steps."""
    sizes = sizes_of(kind)
    seconds = [STEPS_BY_KIND[kind](1 + size) + drafting_seconds(size) for size in sizes]
    return float(sum(1 + NODES[:size].sum() for size in sizes) / sum(seconds))


def test_the_cheaper_verification_is_the_more_nodes_are_drafted() -> None:
    """The best sizes are 12, 5 and 3. Nodes of nearly equal worth may or may not be drafted: 2 of 12, 3 beyond 5."""
    best = {kind: max(range(len(NODES) + 1), key=lambda size: true_rate(kind, size)) for kind in STEPS_BY_KIND}
    assert best == {"cheap": 12, "fair": 5, "expensive": 3}
    assert np.median(sizes_of("cheap")) >= 10
    assert 4 <= np.median(sizes_of("fair")) <= 8
    assert 1 <= np.median(sizes_of("expensive")) <= DEPTH


@pytest.mark.parametrize("kind", STEPS_BY_KIND)
def test_comes_within_four_hundredths_of_the_best_size(kind: str) -> None:
    """Steps without drafts, to compare with, are included."""
    assert rate(kind) >= 0.96 * max(true_rate(kind, size) for size in range(len(NODES) + 1))


def test_a_tree_is_any_size_within_its_limit() -> None:
    """Each limit from 0 to K and beyond, where neither drafting nor verification costs much: all of it is drafted."""
    control = OptimalControl([ProposerTraits(5, is_tree=True)], 64, 2048)
    control.probed([(1, 0.02), (64, 0.02)])
    for size in [1, 5] * 10:
        control.measured(MeasuredStep(8, 8, 800, 0.02 + 1e-5 * size, (Drafting(size, 8 * size, 0, 1e-5 * size),)))
    planned = control.plan([DraftRequest(f"{limit}", (limit,), (0,)) for limit in range(8)], StepBatch(8, 8, 800, 100))
    assert [length_of(draft_plan, 0) for draft_plan in planned] == [0, 1, 2, 3, 4, 5, 5, 5]
