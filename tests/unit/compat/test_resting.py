"""Which drafters rest, and what runners get of a step in which one does."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from vllm_spec_plugin.compat.resting import (
    REST,
    DrafterAfterRest,
    after_rest,
    has_no_speculation,
    resting_on_v1,
    resting_on_v2,
)

OURS = "vllm_spec_plugin.worker.cpu.NativeCPUWorker"


class UsersWorker:
    """Knows no rests."""


def config(method: str, **more: Any) -> Any:
    parallel = {"data_parallel_size": 1, "pipeline_parallel_size": 1, "worker_cls": OURS}
    settings = {"use_v2_model_runner": False, "kv_transfer_config": None} | more
    return SimpleNamespace(
        speculative_config=SimpleNamespace(method=method),
        parallel_config=SimpleNamespace(**{name: settings.pop(name, value) for name, value in parallel.items()}),
        **settings,
    )


@pytest.mark.parametrize(
    ("method", "is_v2", "after"),
    [
        ("ngram", False, DrafterAfterRest.AS_BEFORE),
        ("medusa", False, DrafterAfterRest.AS_BEFORE),
        ("ngram_gpu", True, DrafterAfterRest.AS_BEFORE),
        ("draft_model", False, DrafterAfterRest.CATCHES_UP),
        ("draft_model", True, DrafterAfterRest.CATCHES_UP),
        *((method, True, DrafterAfterRest.KEEPS_GAP) for method in ("eagle", "eagle3", "mtp", "dflash", "dspark")),
        ("ngram_gpu", False, "ngram_gpu may follow each step's tokens"),
        ("suffix", False, "suffix may follow each step's tokens"),
        ("of tomorrow", True, "of tomorrow may follow each step's tokens"),
    ],
)
def test_a_drafter_rests_if_its_method_is_known_to_bear_it(method: str, is_v2: bool, after: Any) -> None:
    assert after_rest(config(method, use_v2_model_runner=is_v2)) == after


@pytest.mark.parametrize(
    ("method", "setting", "reason"),
    [
        ("ngram", {"data_parallel_size": 2}, "replicas"),
        ("ngram", {"pipeline_parallel_size": 2}, "stages"),
        ("eagle3", {"kv_transfer_config": object()}, "connector"),
        ("eagle3", {"worker_cls": f"{__name__}.UsersWorker"}, "no subclass of the plugin's worker"),
    ],
)
def test_settings_in_which_a_drafter_never_rests(method: str, setting: dict[str, Any], reason: str) -> None:
    found = after_rest(config(method, **setting))
    assert isinstance(found, str)
    assert reason in found


def propose(*args: Any, **kwargs: Any) -> Any:
    return "drafts"


class Runner:
    """V1's, of which the next step takes its tokens if scheduling is asynchronous."""

    def __init__(self, *, is_async: bool) -> None:
        self.valid_sampled_token_count_event = object() if is_async else None
        self.requests = self.input_batch = None
        self.discard_request_mask = SimpleNamespace(gpu=None)
        self.drafter = SimpleNamespace(prepare_next_token_ids_padded=lambda sampled, *args: (sampled[:, 0], 1))
        self.copied: list[Any] = []

    def _copy_valid_sampled_token_count(self, *args: Any) -> None:
        self.copied.append(args)


@pytest.mark.parametrize("is_async", [False, True])
def test_v1_gets_no_drafts_and_an_asynchronous_step_its_tokens(is_async: bool) -> None:
    proposed = resting_on_v1(runner := Runner(is_async=is_async), propose)  # type: ignore[arg-type]
    output: Any = SimpleNamespace(num_spec_tokens_to_schedule=REST)
    drafts = proposed(output, torch.tensor([[5, -1], [6, 7]]), "further arguments")
    assert drafts.shape == (2, 0)
    assert [ids.tolist() for ids, _ in runner.copied] == ([[5, 6]] if is_async else [])
    assert proposed(output, [[5], [6, 7]]) == [[], []]
    output.num_spec_tokens_to_schedule = 0
    assert proposed(output, [[5], [6, 7]]) == "drafts"


def test_v2_gets_placeholders() -> None:
    proposed = resting_on_v2(torch.zeros(8, 3, dtype=torch.int64), propose)
    batch: Any = SimpleNamespace(num_reqs=2)
    assert proposed(input_batch=batch, num_speculative_tokens=REST).tolist() == [[-1] * 3] * 2
    assert proposed(batch, num_speculative_tokens=0) == "drafts"
    assert proposed(batch, dummy_run=True) == "drafts"


@pytest.mark.parametrize(
    ("length", "drafts", "is_async", "is_recurrent", "budgets", "expected"),
    [
        (REST, {}, False, False, None, True),
        (0, {}, False, False, None, False),
        (REST, {"a": [5]}, False, False, None, False),
        (REST, {}, True, False, None, False),
        (REST, {}, False, True, None, False),
        (REST, {}, False, False, object(), False),
    ],
)
def test_v1_runs_a_step_as_without_speculation(
    length: int, drafts: dict[str, list[int]], is_async: bool, is_recurrent: bool, budgets: Any, expected: bool
) -> None:
    runner: Any = SimpleNamespace(
        use_async_scheduling=is_async,
        model_config=SimpleNamespace(has_inner_state=is_recurrent),
        input_batch=SimpleNamespace(thinking_budget_state_holder=budgets),
    )
    output: Any = SimpleNamespace(num_spec_tokens_to_schedule=length, scheduled_spec_decode_tokens=drafts)
    assert has_no_speculation(runner, output) == expected
