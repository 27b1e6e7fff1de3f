"""Reloads a drafter's weights with the target's: sleep of level 2 discards both, and vLLM reloads the target's only."""

from typing import TYPE_CHECKING, Any

from vllm_spec_plugin.v1.compat.draft_model import reload_weights
from vllm_spec_plugin.v1.drafting.drafter import Drafter

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.cuda import Worker
else:
    Worker = object


class ReloadsDrafter(Worker):
    """Mixin before a vLLM worker."""

    def reload_weights(self, weights_iterator: Any = None, *args: Any, **kwargs: Any) -> None:
        """Reloads the target's weights, and the drafter's from its folder if the target's come from theirs."""
        super().reload_weights(weights_iterator, *args, **kwargs)
        if weights_iterator is None and (model := self.get_draft_model()) is not None:
            speculative = self.vllm_config.speculative_config
            assert speculative is not None
            reload_weights(self.vllm_config, speculative.draft_model_config, model)
        self._renew_drafter()

    def finish_weight_update(self) -> None:
        """Ends an update of the target's or the drafter's weights."""
        super().finish_weight_update()
        self._renew_drafter()

    def _renew_drafter(self) -> None:
        if isinstance(drafter := getattr(self.model_runner, "drafter", None), Drafter):
            drafter.renew()
