"""Tests when a drafter's weights are read again: with the target's from its folder, never over an update's."""

from types import SimpleNamespace
from typing import Any

import pytest

from vllm_spec_plugin.worker import reload
from vllm_spec_plugin.worker.reload import ReloadsDrafter


class Worker:
    """Stands for vLLM's worker, with a drafter."""

    model_runner = SimpleNamespace()
    vllm_config = SimpleNamespace(speculative_config=SimpleNamespace(draft_model_config="draft"))

    def reload_weights(self, weights_iterator: Any = None) -> None:
        """Reads the target's weights."""

    def finish_weight_update(self) -> None:
        """Ends an update."""

    def get_draft_model(self) -> str:
        return "drafter"


Reloading: Any = type("Reloading", (ReloadsDrafter, Worker), {})


@pytest.mark.parametrize(("weights", "is_read"), [(None, True), (iter(()), False)])
def test_the_drafter_is_read_again_with_a_target_from_its_folder_only(
    weights: Any, is_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[Any, ...]] = []
    monkeypatch.setattr(reload, "reload_weights", lambda *args: read.append(args[1:]))
    Reloading().reload_weights(weights)
    assert read == [("draft", "drafter")] * is_read


def test_an_update_brings_all_weights_that_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    monkeypatch.setattr(reload, "reload_weights", lambda *args: read.append(args))
    Reloading().finish_weight_update()
    assert not read
