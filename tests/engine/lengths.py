"""Draft lengths at random, and steps of equal length: tests of exactness do not depend on how long steps take."""

from collections import Counter
from collections.abc import Sequence
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

from vllm_spec_plugin.config.settings import config_in
from vllm_spec_plugin.messages import result_of
from vllm_spec_plugin.scheduling.draft_length.control import DraftRequest, StepBatch
from vllm_spec_plugin.scheduling.draft_length.fixed import FixedControl
from vllm_spec_plugin.turns import Turns

# Share of requests without a draft.
_WITHOUT = 0.05
# What a step takes for the policy, in seconds; drafting takes far less.
_STEP = 0.1
# Drafts with a branch that were verified, as "drafted accepted".
_seen = Counter[str]()


class RandomControl(FixedControl):
    """Plans proposers in a random order, each for a random number of tokens."""

    is_constant = False

    def __init__(self) -> None:
        """Starts the sequence of random numbers."""
        self._rng = Random(0)

    def plan(self, wishes: Sequence[DraftRequest], batch: StepBatch) -> list[Turns]:
        """Draws each request's turns."""
        return [self._turns(request.limits) for request in wishes]

    def _turns(self, limits: Sequence[int]) -> Turns:
        if self._rng.random() < _WITHOUT:
            return ()
        turns = [(place, self._rng.randint(1, limit)) for place, limit in enumerate(limits) if limit > 0]
        self._rng.shuffle(turns)
        return tuple(turns)


def install() -> None:
    """Replaces the policy of each engine that is built from now on, and checks which nodes of trees it reports.

    The engine's scheduler must be in this process. Nodes are checked where there is one proposer.
    """
    from vllm_spec_plugin.scheduling import native, scheduler, text

    update = scheduler.SpecScheduler.update_from_output

    def create(*_: Any) -> RandomControl:
        return RandomControl()

    def checked_update(self: Any, scheduler_output: Any, output: Any) -> Any:
        reported = result_of(output).accepted_nodes
        parents = _tree_order(self.vllm_config.additional_config) if reported else ()
        for request_id, nodes in reported.items():
            accepted = len(output.sampled_token_ids[output.req_id_to_index[request_id]]) - 1
            drafted = len(scheduler_output.scheduled_spec_decode_tokens[request_id])
            assert len(nodes) == accepted
            if parents:
                assert [parents[node] for node in nodes] == [-1, *nodes[:-1]][: len(nodes)]
            _seen[f"{drafted} {accepted}"] += 1
        return update(self, scheduler_output, output)

    mock.patch.object(scheduler, "create_control", create).start()
    for module in (native, text):
        mock.patch.object(module, "create_control", create).start()
    mock.patch.object(scheduler.SpecScheduler, "update_from_output", checked_update).start()


def equal_steps(seconds: float = _STEP) -> None:
    """Tells the policy of each engine from now on that all steps take equally long, so that it drafts much."""
    from vllm_spec_plugin.scheduling import adapter, native_adapter

    clock = equal_clock(seconds)
    for module in (adapter, native_adapter):
        mock.patch.object(module, "time", clock).start()


def equal_clock(seconds: float = _STEP) -> SimpleNamespace:
    """Returns what stands for the module `time` where each look at the clock is as far from the one before."""
    ticks = count()
    return SimpleNamespace(perf_counter=lambda: next(ticks) * seconds)


def count_anew() -> Counter[str]:
    """Forgets the drafts with a branch that were verified, and returns the count of those to come."""
    _seen.clear()
    return _seen


def _tree_order(additional_config: Any) -> tuple[int, ...]:
    """Parents of a tree's nodes; empty where several proposers draft."""
    config = config_in(additional_config)
    if len(config.proposers) > 1:
        return ()
    return config.proposers[0].tree_order(config.draft_length.tokens)
