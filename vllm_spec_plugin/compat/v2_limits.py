"""Sizes of the V2 runner's tables of sampling parameters: for more its worker raises, which ends the engine."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import InputProcessor, SamplingParams, SpeculativeConfig


def refusing(is_ours: "Callable[[SpeculativeConfig | None], bool]") -> Callable[..., Any]:
    """Returns what makes vLLM's `process_inputs` refuse requests that do not fit, on the plugin's servers with V2."""

    def replace(original: Callable[..., Any]) -> Callable[..., Any]:
        def process_inputs(self: "InputProcessor", *args: Any, **kwargs: Any) -> Any:
            # Only now are words tokenized, and the model's stop tokens among the request's.
            request, config = original(self, *args, **kwargs), self.vllm_config
            if request.sampling_params and config.use_v2_model_runner and is_ours(config.speculative_config):
                check_fits(request.sampling_params)
            return request

        return process_inputs

    return replace


def check_fits(params: "SamplingParams") -> None:
    """Refuses what the V2 runner has no room for.

    Raises:
        VLLMValidationError: names the parameter, its size and what is allowed; vLLM answers it with status 400.
    """
    from vllm import envs
    from vllm.exceptions import VLLMValidationError
    from vllm.v1.worker.gpu.sample import logit_bias

    held_back = params.all_stop_token_ids if params.min_tokens else ()
    bad_words = sum(map(len, params.bad_words_token_ids or ()))
    for name, size, room, instead in (
        ("allowed_token_ids", len(params.allowed_token_ids or ()), logit_bias.MAX_NUM_ALLOWED_TOKEN_IDS, ""),
        ("stop_token_ids", len(held_back), logit_bias.MAX_NUM_STOP_TOKEN_IDS, ", or no min_tokens"),
        ("bad_words", bad_words, envs.VLLM_MAX_BAD_WORDS_TOTAL_TOKENS, ""),
    ):
        if size > room:
            text = f"{name}: got {size} tokens, but vLLM's V2 runner has no room for them; allowed: {room}{instead}"
            raise VLLMValidationError(text, parameter=name)
