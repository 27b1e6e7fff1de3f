"""Reloads a drafter's weights with the target's: sleep of level 2 discards both, and vLLM reloads the target's only."""

from typing import TYPE_CHECKING, Any

from vllm_spec_plugin.compat.drafter_model import reload_weights

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
        self.renew_drafter()

    def finish_weight_update(self) -> None:
        """Ends an update of the target's or the drafter's weights."""
        super().finish_weight_update()
        self.renew_drafter()

    def renew_drafter(self) -> None:
        """Forgets what a drafter made with former weights; vLLM's drafters keep nothing of the kind."""
