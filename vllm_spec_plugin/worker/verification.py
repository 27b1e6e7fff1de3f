"""Workers whose V2 runner verifies drafts as configured."""

from typing import TYPE_CHECKING, Any, cast

from vllm_spec_plugin.compat.v2_verification import replace_verification, sample_with_target_noise
from vllm_spec_plugin.config.settings import config_in
from vllm_spec_plugin.verification.coupled import accept_equal

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.cuda import Worker
    from vllm_spec_plugin.compat.types import V2ModelRunner
else:
    Worker = object


class VerifiesOnV2(Worker):
    """Mixin before a vLLM worker."""

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Loads the model, and lets the configured verification take over."""
        super().load_model(*args, **kwargs)
        if not self.use_v2_model_runner:
            return
        config, runner = config_in(self.vllm_config.additional_config), cast("V2ModelRunner", self.model_runner)
        if (method := config.verified_on_v2) != "token":
            replace_verification(runner, accept_equal if method == "coupled" else None)
        if config.is_native and config.shares_noise_on_v2:
            sample_with_target_noise(runner.speculator)
