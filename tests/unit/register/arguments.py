"""vLLM's engine arguments that `translate` reads."""

from typing import Any

from vllm_spec_plugin.models import model_path


class _Arguments:
    """Engine arguments of the bundled target, unless given."""

    speculative_config: dict[str, Any]

    def __init__(self, **given: Any) -> None:
        self.worker_cls: Any = "auto"
        self.scheduler_cls: Any = None
        self.additional_config: Any = {"mine": 1}
        self.async_scheduling: bool | None = None
        self.model, self.tokenizer, self.revision, self.tokenizer_revision = str(model_path("target")), None, None, None
        self.trust_remote_code, self.skip_tokenizer_init = False, False
        self.tensor_parallel_size, self.max_model_len, self.load_format = 1, None, "auto"
        self.__dict__.update(given)


# In place of vLLM's `EngineArgs`.
Arguments: Any = _Arguments
