"""Tests the clock of drafters that vLLM calls: their time reaches the scheduler with the outcome of a step."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.v1.outputs import ModelRunnerOutput

from vllm_spec_plugin.messages import result_of
from vllm_spec_plugin.worker import drafter_time
from vllm_spec_plugin.worker.drafter_time import DrafterClock, TimesDrafter

CPU = torch.device("cpu")


class Worker:
    """Stands for vLLM's worker, whose runner drafts within `sample_tokens`."""

    device, vllm_config = CPU, SimpleNamespace(additional_config=None)

    def __init__(self, runner: Any, *, is_v2: bool) -> None:
        self.model_runner, self.use_v2_model_runner = runner, is_v2

    def load_model(self) -> None:
        """Loads nothing."""

    def sample_tokens(self, grammar_output: Any) -> Any:
        return self.model_runner.sample()


# As the mixin stands before vLLM's worker.
Timed: Any = type("Timed", (TimesDrafter, Worker), {})


class Late:
    """Stands for an outcome whose tokens are still being copied."""

    def __init__(self, outcome: ModelRunnerOutput) -> None:
        self._model_runner_output = outcome


def outcome(request_ids: list[str]) -> ModelRunnerOutput:
    return ModelRunnerOutput(req_ids=request_ids, req_id_to_index={name: i for i, name in enumerate(request_ids)})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(drafter_time, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    return clock


@pytest.mark.parametrize("is_v2", [False, True])
@pytest.mark.parametrize("is_late", [False, True])
def test_time_is_sent_with_the_outcome_of_a_step(
    is_v2: bool, is_late: bool, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposer = SimpleNamespace(method="medusa", is_token_only=False)
    monkeypatch.setattr(drafter_time, "config_in", lambda _: SimpleNamespace(proposers=[proposer]))
    outcomes = [outcome(["a"]), outcome([]), outcome(["a"])]

    def propose(*args: Any, **kwargs: Any) -> list[int]:
        clock.now += 0.25
        return [1]

    def sample() -> Any:
        drafter = runner.speculator.propose if is_v2 else runner.propose_draft_token_ids
        assert drafter() == [1]
        assert drafter(dummy_run=True) == [1]
        return Late(outcomes[0]) if is_late else outcomes[0]

    runner = SimpleNamespace(
        sample=sample, propose_draft_token_ids=propose, speculator=SimpleNamespace(propose=propose)
    )
    worker = Timed(runner, is_v2=is_v2)
    worker.load_model()
    counted = []
    while outcomes:
        worker.sample_tokens(None)
        counters = result_of(outcomes.pop(0)).counters
        counted.append(None if counters is None else counters.of("medusa").proposer_seconds)
    # vLLM shares outcomes without requests, so time waits for the next one.
    assert counted == [0.25, None, 0.5]


def test_a_worker_that_drafts_nothing_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Covers a scheduler that drafts, and a pipeline stage before the last one."""
    proposer = SimpleNamespace(method="suffix", is_token_only=True)
    monkeypatch.setattr(drafter_time, "config_in", lambda _: SimpleNamespace(proposers=[proposer]))
    runner = SimpleNamespace(sample=lambda: outcome(["a"]), speculator=None)
    for proposer.is_token_only in (True, False):
        worker = Timed(runner, is_v2=True)
        worker.load_model()
        assert result_of(worker.sample_tokens(None)).counters is None


def test_kernels_are_timed_without_waiting_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU a call's time is taken once its last kernel has run."""

    class Event:
        is_done = False

        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            """Takes no time."""

        def query(self) -> bool:
            return Event.is_done

        def elapsed_time(self, other: "Event") -> float:
            return 500.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    clock = DrafterClock(torch.device("cuda"))
    clock.timed(lambda: None)()
    assert clock.take() == 0.0
    Event.is_done = True
    assert (clock.take(), clock.take()) == (0.5, 0.0)
