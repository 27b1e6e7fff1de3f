"""Loses weights in an engine's process, as sleep of level 2 does on a GPU, and brings them back in vLLM's ways."""

from collections.abc import Callable
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import WeightTransferEngine
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.model_loader import get_model_loader
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

FOLDER = "folder"


class FolderEngine(WeightTransferEngine[Any, Any]):
    """Updates weights from the model's own folder; vLLM's engines need a GPU."""

    def init_transfer_engine(self, init_info: Any) -> None:
        """Needs nothing."""

    def start_weight_update(self) -> None:
        """Prepares the layers."""
        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: Any) -> None:
        """Loads all weights."""
        loader: Any = get_model_loader(self.vllm_config.load_config)
        model: Any = self.model
        model.load_weights(loader.get_all_weights(self.model_config, model))

    def finish_weight_update(self) -> None:
        """Completes the layers."""
        finalize_layerwise_reload(self.model, self.model_config)

    def receive_weights(self, update_info: Any) -> None:
        """Never called."""

    def shutdown(self) -> None:
        """Holds nothing."""


def install() -> None:
    """Registers `FolderEngine`."""
    if FOLDER not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(FOLDER, FolderEngine)


def _lose(llm: Any, *, target: bool) -> None:
    """Sets the drafter's weights to zero, and the target's, too."""

    def lose(worker: Any) -> None:
        own = {id(weight) for weight in worker.get_model().parameters()}
        for model in (worker.get_draft_model(), worker.get_model()) if target else (worker.get_draft_model(),):
            for weight in model.parameters():
                if target or id(weight) not in own:
                    torch.nn.init.zeros_(weight)

    llm.collective_rpc(lose)
    llm.reset_prefix_cache()


def _reload(llm: Any) -> None:
    _lose(llm, target=True)
    llm.collective_rpc("reload_weights")


def _update(llm: Any) -> None:
    _lose(llm, target=False)
    llm.collective_rpc("start_draft_weight_update")
    llm.collective_rpc("update_weights", args=({},))
    llm.collective_rpc("finish_weight_update")


EVENTS: dict[str, Callable[[Any], None]] = {
    "drafter lost": lambda llm: _lose(llm, target=False),
    "reload": _reload,
    "draft update": _update,
}
