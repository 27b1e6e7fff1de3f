"""Renders prompts as texts, and compares their lengths with the model's context."""

from collections.abc import Sequence

from vllm_spec_plugin.proposers.model_source import ModelSource, UnreadableError, read_facts
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_plugin.tools.planner.traffic import Prompt
from vllm_spec_plugin.tools.prompts import GivenPrompt, load_tokenizer

_LEAST_TOKENS = 2


def as_traffic(given: Sequence[GivenPrompt], model: str, temperature: float, num_tokens: int) -> tuple[Prompt, ...]:
    """The requests of the traffic.

    Args:
        given: at least one.
        model: that is served, a folder or a hub name.
        temperature: of prompts that have none of their own.
        num_tokens: maximum output tokens of each, also where its own `max_tokens` is more.

    Raises:
        UserError: the model has no tokenizer or no chat template, or a prompt does not fit its context.
    """
    tokenizer, context = load_tokenizer(model), _context(model)
    found = []
    for one in given:
        text = one.render(tokenizer)
        tokens = max(min(one.max_tokens or num_tokens, num_tokens), _LEAST_TOKENS)
        length = len(tokenizer(text).input_ids)
        if context is not None and length + tokens > context:
            raise UserError(
                f"{one.where}: {length} tokens, and {tokens} to come, but the model's context is {context}; allowed: "
                "a shorter prompt, or fewer --output-tokens"
            )
        own = temperature if one.temperature is None else one.temperature
        found.append(Prompt(text, one.workload, own, tokens, one.prediction or ""))
    return tuple(found)


def _context(model: str) -> int | None:
    try:
        return read_facts(ModelSource(model)).context
    except UnreadableError:  # vLLM serves models that transformers does not know
        return None
