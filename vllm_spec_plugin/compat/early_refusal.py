"""Refuses requests before their streams begin: vLLM checks what drafts forbid after it has answered with status 200."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vllm_spec_plugin.compat.patching import wrap

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import SpeculativeConfig


def patch(is_ours: "Callable[[SpeculativeConfig | None], bool]") -> None:
    """Makes vLLM's OpenAI API check each request against the speculative config first.

    Args:
        is_ours: whether vLLM's `SpeculativeConfig` is the plugin's.
    """
    from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
    from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion
    from vllm.entrypoints.openai.responses.serving import OpenAIServingResponses

    for serving, name in (
        (OpenAIServingChat, "create_chat_completion"),
        (OpenAIServingCompletion, "create_completion"),
        (OpenAIServingResponses, "create_responses"),
    ):
        wrap(serving, name, checking(is_ours))


def checking(is_ours: "Callable[[SpeculativeConfig | None], bool]") -> Callable[..., Any]:
    """Returns what wraps the methods that answer requests; see `patch`."""

    def replace(original: Callable[..., Any]) -> Callable[..., Any]:
        async def create(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            config = self.engine_client.vllm_config.speculative_config
            # Beam search makes requests of its own.
            if is_ours(config) and not getattr(request, "use_beam_search", False):
                _check(request, config)
            return await original(self, request, *args, **kwargs)

        return create

    return replace


def _check(request: Any, config: "SpeculativeConfig") -> None:
    """Checks the parameters that depend on drafts, as vLLM will with all of them."""
    from vllm.sampling_params import SamplingParams

    # The server's default may be 0, with which vLLM ignores min-p.
    temperature = 0.0 if request.temperature is None else request.temperature
    SamplingParams.from_optional(
        temperature=temperature,
        min_p=request.min_p or 0.0,
        logit_bias=request.logit_bias,
        logprob_token_ids=getattr(request, "logprob_token_ids", None) or None,
        extra_args=request.vllm_xargs,
    )._validate_spec_decode(config)
