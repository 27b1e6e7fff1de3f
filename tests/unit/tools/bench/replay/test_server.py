"""The replayed server: positions, seconds and what the policy is told."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.unit.tools.bench.replay.cases import DRAFT_MODEL, chain, costs, recording, trace
from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.scheduling.draft_length.control import Batch, DraftRequest, Measured
from vllm_spec_plugin.scheduling.draft_length.fixed import FixedControl
from vllm_spec_plugin.tools.bench.replay.recording import Recording
from vllm_spec_plugin.tools.bench.replay.server import Load, Result, Server
from vllm_spec_plugin.tools.bench.replay.traces import Trace, Verified
from vllm_spec_plugin.turns import Turns


class Witness(FixedControl):
    """Drafts as `FixedControl`, but not in some steps, and remembers everything."""

    def __init__(self, pauses: Sequence[int] = ()) -> None:
        self._pauses = pauses
        self.wishes: list[list[DraftRequest]] = []
        self.outcomes: list[tuple[int | None, int, int]] = []
        self.positions: list[int] = []
        self.nodes: list[tuple[int, ...] | None] = []
        self.steps: list[Measured] = []
        self.gone: list[str] = []

    def plan(self, wishes: Sequence[DraftRequest], batch: Batch) -> list[Turns]:
        self.wishes.append(list(wishes))
        return [()] * len(wishes) if len(self.wishes) - 1 in self._pauses else super().plan(wishes, batch)

    def verified(
        self,
        request_id: str,
        turns: Turns,
        source: int | None,
        drafted: int,
        accepted: int,
        num_output_tokens: int = 0,
        nodes: tuple[int, ...] | None = None,
    ) -> None:
        assert turns
        self.outcomes.append((source, drafted, accepted))
        self.positions.append(num_output_tokens)
        self.nodes.append(nodes)

    def measured(self, step: Measured) -> None:
        self.steps.append(step)

    def forget(self, request_id: str) -> None:
        self.gone.append(request_id)


def load(streams: int = 1, tokens: int = 30, **changes: object) -> Load:
    return replace(Load(streams, (("easy",),), tokens, 40, 0), **changes)  # type: ignore[arg-type]


def recorded(*traces: Trace, **changes: object) -> Recording:
    return replace(recording(), traces=traces, **changes)  # type: ignore[arg-type]


def serve(
    control: FixedControl | None, proposers: tuple[int, ...] = (1,), streams: int = 1, tokens: int = 30
) -> Result:
    return Server(recorded(trace()), proposers, 4).serve(load(streams, tokens), control)


def test_without_a_plugin_each_step_gives_each_request_a_token() -> None:
    result = serve(None, streams=4, tokens=3)
    assert result.tokens == [4, 4, 4]
    # In the first step 40 tokens of prompts.
    assert result.seconds == pytest.approx([0.014 + 0.036, 0.014, 0.014])


def test_a_position_advances_by_what_is_accepted_there_and_one() -> None:
    accepted = "0" + "3102" + "0" * 35
    control = Witness()
    server = Server(recorded(Trace("easy", 10, (chain("4" * 40, accepted),))), (0,), 4)
    server.serve(load(tokens=12), control)
    # The first token is the prompt's; then positions 1, 5, 6, 7.
    assert control.outcomes[:3] == [(0, 4, 3), (0, 4, 0), (0, 4, 0)]
    assert control.positions[:3] == [5, 6, 7]
    assert control.nodes[0] is None


def test_a_step_pays_for_the_drafts_that_it_verifies_and_for_those_that_it_makes() -> None:
    control = Witness()
    result = serve(control, tokens=9)
    # The prompt's 10 tokens, and its catching up; then 5 tokens to verify.
    assert result.seconds[:2] == pytest.approx([0.012 + 0.009 + 0.0005 + 0.004 + 0.001, 0.018 + 0.0005 + 0.004])
    assert [step.seconds for step in control.steps] == result.seconds
    assert [step.num_tokens for step in control.steps[:2]] == [10, 5]
    assert [step.has_drafts for step in control.steps[:2]] == [False, True]
    assert control.steps[0].drafting[0].caught_up == 10
    assert control.steps[1].drafting[0].caught_up == 0


def test_a_proposer_that_was_left_out_catches_up() -> None:
    control = Witness(pauses=(2, 3))
    serve(control, tokens=20)
    assert [wishes[0].uncomputed_tokens for wishes in control.wishes[:6]] == [(10,), (0,), (0,), (4,), (5,), (0,)]
    assert [step.drafting[0].caught_up for step in control.steps[:6]] == [10, 0, 0, 0, 5, 0]


def test_in_a_cascade_the_next_proposer_drafts_where_the_one_before_has_no_guess() -> None:
    control = Witness()
    serve(control, (0, 1), tokens=12)
    # At positions 1, 5 and 9: n-grams match at 9.
    assert control.outcomes[:3] == [(1, 4, 3), (1, 4, 3), (0, 4, 4)]
    assert control.steps[2].drafting[1].num_drafted == 0
    # The draft model has not seen what it was not asked for.
    assert control.wishes[3][0].uncomputed_tokens == (0, 4)


def test_requests_end_at_their_length_and_others_follow() -> None:
    control = Witness()
    result = serve(control, streams=3, tokens=200)
    lengths = len(control.gone) - 3
    assert lengths > 5
    assert len(set(control.gone)) == len(control.gone)
    assert all(count >= 3 for count in result.tokens)
    assert sum(result.tokens) == 3 * len(result.tokens) + sum(accepted for _, _, accepted in control.outcomes)


def test_the_same_seed_gives_the_same_figures() -> None:
    noisy = Server(recorded(trace(), trace(length=20), costs=costs((0.9, 1.0, 1.2))), (1,), 4)
    first, again, other = (noisy.serve(load(seed=seed), FixedControl()) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_of_a_tree_the_accepted_nodes_are_told() -> None:
    tree = (Verified(9, (0, 4, 7)),) * 40
    control = Witness()
    section = {"proposer": DRAFT_MODEL | {"branches": [3, 2]}, "draft_length": {"policy": "fixed", "tokens": 9}}
    Server(recorded(Trace("easy", 10, (tree,)), config=parse_config(section, "a test")), (0,), 5).serve(load(), control)
    assert control.outcomes[0] == (0, 5, 2)
    assert control.nodes[0] == (0, 4)
