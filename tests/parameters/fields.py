"""The fields of vLLM's `SamplingParams` and of its OpenAI requests, and what servers with drafts do with each.

A served field means the same with drafts as without: `tests/e2e/fuzz` sends all of them over HTTP, and
`tests/engine/test_exactness.py` all that reach the engine. A newer vLLM's field that is not here fails
`tests/unit/parameters/test_fields.py`.
"""

from dataclasses import dataclass
from enum import StrEnum

from vllm_spec_plugin.gate.scopes import OWN
from vllm_spec_plugin.gate.ways import Way


class Verdict(StrEnum):
    """Treatment of a request that has the field."""

    SERVED = "served"
    REFUSED = "refused"
    IRRELEVANT = "irrelevant"


# Asynchronous ways are on both runners.
_ON_V2 = frozenset(
    (Way.VLLM_V2, Way.TOKEN_ONLY, Way.TOKEN_ONLY_VLLM_V2, Way.HEADS, Way.HEADS_ASYNC, Way.TOKEN_ONLY_HEADS)
)


@dataclass(frozen=True)
class Field:
    """Treatment of a field by servers with drafts.

    Attributes:
        verdict: where the plugin verifies: on V1, with its own proposers.
        why: reason of a verdict that is not `SERVED`.
        by_vllm: verdict where vLLM verifies; None is the same.
        why_by_vllm: reason of it.
        on_v2: verdict on vLLM's V2 runner; None is that where vLLM verifies.
        since: first version of vLLM with the field; empty is all that are supported.
    """

    verdict: Verdict
    why: str = ""
    by_vllm: Verdict | None = None
    why_by_vllm: str = ""
    on_v2: Verdict | None = None
    since: tuple[int, ...] = ()

    def where(self, way: Way) -> Verdict:
        """Returns the verdict of a way to draft."""
        if way in _ON_V2 and self.on_v2:
            return self.on_v2
        return self.by_vllm if way not in OWN.ways and self.by_vllm else self.verdict


def _all(verdict: Verdict, why: str, *names: str) -> dict[str, Field]:
    return {name: Field(verdict, why) for name in names}


_SERVED = {
    name: Field(Verdict.SERVED)
    for name in (
        *("allowed_token_ids", "bad_words", "cache_salt", "echo", "extra_args", "frequency_penalty", "ignore_eos"),
        *("include", "include_stop_str_in_output", "input", "instructions", "logprobs", "max_completion_tokens"),
        *("max_output_tokens", "max_tokens", "messages", "min_tokens", "n", "presence_penalty", "priority", "prompt"),
        *("prompt_logprobs", "repetition_detection", "repetition_penalty", "request_id", "response_format"),
        *("return_token_ids", "return_tokens_as_token_ids", "seed", "skip_reading_prefix_cache", "skip_special_tokens"),
        *("spaces_between_special_tokens", "stop", "stop_token_ids", "stream", "stream_interval", "stream_options"),
        *("structured_outputs", "temperature", "text", "tool_choice", "tools", "top_k", "top_logprobs", "top_p"),
        *("truncate_prompt_tokens", "truncation", "truncation_side", "use_beam_search", "length_penalty"),
        *("vllm_xargs", "session_id", "user", "metadata", "store", "add_special_tokens", "add_generation_prompt"),
        *("continue_final_message", "chat_template_kwargs", "include_reasoning", "parallel_tool_calls"),
        *("reasoning_effort", "thinking_token_budget"),
    )
}
_IGNORED = "vLLM's verification on V1 ignores it; served on V2"
_REFUSED = {
    "trace_decode_token_ids": Field(Verdict.REFUSED, "vLLM refuses it with speculation, and no OpenAI request has it"),
    "suffix": Field(Verdict.REFUSED, "vLLM serves it with prompts of models for filling in only"),
    "logit_bias": Field(Verdict.SERVED, "", Verdict.REFUSED, _IGNORED, Verdict.SERVED),
    "min_p": Field(Verdict.SERVED, "", Verdict.REFUSED, _IGNORED, Verdict.SERVED),
    "logprob_token_ids": Field(
        Verdict.SERVED,
        "",
        Verdict.REFUSED,
        "vLLM's verification ends the engine on V1 (vLLM #44727) and returns other tokens on V2",
    ),
    "prompt_logprob_token_ids": Field(
        Verdict.REFUSED, "vLLM serves it on V2 only", Verdict.SERVED, "on V2; vLLM refuses it on V1"
    ),
    "prompt_logprob_start": Field(
        Verdict.REFUSED, "vLLM serves it on V2 only", Verdict.SERVED, "on V2; vLLM refuses it on V1"
    ),
}
_IRRELEVANT = (
    _all(
        Verdict.IRRELEVANT,
        "the API server alone reads it, before tokens are asked for or after they have come",
        *("background", "chat_template", "detokenize", "documents", "enable_response_messages", "flat_logprobs"),
        *("max_tool_calls", "model", "output_kind", "output_text_buffer_length", "previous_input_messages"),
        *("previous_response_id", "prompt_cache_key", "reasoning", "return_prompt_text", "return_token_offsets"),
        *("service_tier", "skip_clone"),
    )
    | _all(
        Verdict.IRRELEVANT,
        "of images and other media, with which own proposers are refused at start; with vLLM's drafters it comes "
        "before the first token",
        *("media_io_kwargs", "mm_payload", "mm_processor_kwargs", "return_mm_kwargs", "ec_transfer_params"),
    )
    | _all(
        Verdict.IRRELEVANT,
        "vLLM sets it from other fields",
        *("_all_stop_token_ids", "_bad_words_token_ids", "_eos_token_id", "_watermarking_skipped"),
    )
    | {
        "kv_transfer_params": Field(
            Verdict.IRRELEVANT, "for a KV connector, of which those that are not tested are refused at start"
        ),
        "prompt_embeds": Field(
            Verdict.IRRELEVANT, "vLLM refuses it without --enable-prompt-embeds; with it, such requests have no drafts"
        ),
        "routed_experts_prompt_start": Field(
            Verdict.IRRELEVANT, "without --enable-return-routed-experts nothing is returned"
        ),
        "watermarking": Field(
            Verdict.IRRELEVANT,
            "vLLM ignores it without --watermark-config, with which it refuses certain drafts at start",
        ),
        "return_weight_versions": Field(
            Verdict.IRRELEVANT, "the API server alone reads it, after the tokens have come", since=(0, 33)
        ),
        "prompt_cache_options": Field(Verdict.IRRELEVANT, "the API server ignores it", since=(0, 33)),
        "prompt_cache_retention": Field(Verdict.IRRELEVANT, "the API server ignores it", since=(0, 33)),
        "safety_identifier": Field(Verdict.IRRELEVANT, "the API server ignores it", since=(0, 33)),
    }
)
FIELDS: dict[str, Field] = dict(sorted((_SERVED | _REFUSED | _IRRELEVANT).items()))
"""By name: a field of several classes means the same in all of them."""

STRUCTURES: dict[str, Field] = {
    **_all(Verdict.SERVED, "", "json", "regex", "choice", "grammar", "json_object", "structural_tag"),
    **_all(Verdict.SERVED, "", "disable_any_whitespace", "disable_additional_properties", "whitespace_pattern"),
    **_all(Verdict.IRRELEVANT, "vLLM sets it", "_backend", "_backend_was_auto"),
}
"""Fields of `structured_outputs`."""
