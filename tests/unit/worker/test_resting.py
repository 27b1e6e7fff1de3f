"""The worker whose drafter rests."""

from types import SimpleNamespace
from typing import Any

import pytest

from vllm_spec_plugin.compat import catch_up
from vllm_spec_plugin.compat.resting import REST
from vllm_spec_plugin.messages import StepPlan, send
from vllm_spec_plugin.worker import resting
from vllm_spec_plugin.worker.resting import RestsDrafter


class Worker:
    """Stands for vLLM's worker; notes what its runner has of speculation while it runs and samples."""

    def __init__(self, method: str, *, is_v2: bool) -> None:
        self.use_v2_model_runner = is_v2
        self.seen: list[Any] = []
        speculative = SimpleNamespace(method=method)
        self.vllm_config = SimpleNamespace(additional_config=None, speculative_config=speculative)
        self.model_runner = SimpleNamespace(
            speculative_config=speculative,
            use_async_scheduling=False,
            model_config=SimpleNamespace(has_inner_state=False),
            input_batch=SimpleNamespace(thinking_budget_state_holder=None),
            propose_draft_token_ids=lambda *args: "drafts",
            _sample=lambda *args: "sampled",
        )

    def load_model(self) -> None:
        """Loads nothing."""

    def execute_model(self, output: Any) -> None:
        self.seen.append(self.model_runner.speculative_config)

    def sample_tokens(self, grammar_output: Any) -> None:
        self.seen.append(self.model_runner.speculative_config)
        if grammar_output:
            raise RuntimeError


Resting: Any = type("Resting", (RestsDrafter, Worker), {})


def output(length: int) -> Any:
    return SimpleNamespace(num_spec_tokens_to_schedule=length, scheduled_spec_decode_tokens={})


@pytest.fixture
def proposer(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    proposer = SimpleNamespace(is_token_only=False)
    monkeypatch.setattr(resting, "config_in", lambda _: SimpleNamespace(proposers=[proposer]))
    return proposer


def test_v1_has_no_speculation_while_the_drafter_rests_and_has_it_again_whatever_happens() -> None:
    worker = Resting("eagle3", is_v2=False)
    speculative = worker.vllm_config.speculative_config
    for length in (2, REST, 0):
        worker.execute_model(output(length))
        worker.sample_tokens(None)
    worker.execute_model(output(REST))
    with pytest.raises(RuntimeError):
        worker.sample_tokens("a fault")
    assert worker.seen == [speculative] * 2 + [None] * 2 + [speculative] * 2 + [None] * 2
    assert worker.model_runner.speculative_config is speculative


@pytest.mark.parametrize(("method", "expected"), [("draft_model", [({"a": (3, [7])}, 6)]), ("eagle3", [])])
def test_on_v1_a_draft_model_catches_up_before_it_drafts(
    method: str, expected: list[Any], proposer: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    caught_up: list[Any] = []
    monkeypatch.setattr(catch_up, "_catch_up_on_v1", lambda runner, missing, step: caught_up.append((missing, step)))
    worker = Resting(method, is_v2=False)
    worker.load_model()
    plan = output(2)
    send(plan, StepPlan(catch_up={"a": (3, [7])}))
    assert worker.model_runner.propose_draft_token_ids(plan, *range(8)) == "drafts"
    assert caught_up == expected
    assert worker.model_runner.propose_draft_token_ids(output(REST), [[5]], *range(7)) == [[]]
