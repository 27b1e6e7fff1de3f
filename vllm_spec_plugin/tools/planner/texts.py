"""From prompts as they are given to texts: chats through the model's template, lengths against its context."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vllm_spec_plugin.proposers.model_source import ModelSource, UnreadableError, read_facts
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_plugin.tools.planner.prompts import GivenPrompt
from vllm_spec_plugin.tools.planner.traffic import Prompt

_LEAST_TOKENS = 2


def as_traffic(given: Sequence[GivenPrompt], model: str, temperature: float, num_tokens: int) -> tuple[Prompt, ...]:
    """The requests of the traffic.

    Args:
        given: at least one.
        model: that is served, a folder or a hub name.
        temperature: of prompts that have none of their own.
        num_tokens: most output tokens of each, also where its own `max_tokens` is more.

    Raises:
        UserError: the model has no tokenizer or no chat template, or a prompt does not fit its context.
    """
    tokenizer, context = _tokenizer(model), _context(model)
    found = []
    for one in given:
        text = one.prompt if one.prompt is not None else _rendered(one, tokenizer)
        tokens = max(min(one.max_tokens or num_tokens, num_tokens), _LEAST_TOKENS)
        length = len(tokenizer(text).input_ids)
        if context is not None and length + tokens > context:
            raise UserError(
                f"{one.where}: {length} tokens, and {tokens} to come, but the model's context is {context}; allowed: "
                "a shorter prompt, or fewer --output-tokens"
            )
        found.append(Prompt(text, one.workload, temperature if one.temperature is None else one.temperature, tokens))
    return tuple(found)


def _tokenizer(model: str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(model, local_files_only=Path(model).is_dir())
    except Exception as error:  # whatever files from anywhere make of the library that reads them
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"--model {model}: its tokenizer cannot be read: {reason}") from None


def _context(model: str) -> int | None:
    try:
        return read_facts(ModelSource(model)).context
    except UnreadableError:  # vLLM serves models that transformers does not know
        return None


def _rendered(one: GivenPrompt, tokenizer: Any) -> str:
    assert one.messages is not None
    messages = [message.model_dump() for message in one.messages]
    try:
        text: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # templates are programs
        reason = str(error).strip().splitlines()[0]
        text = f"{one.where}: the model's chat template does not take these messages: {reason}"
        raise UserError(f'{text}; allowed: other messages, or the whole text as "prompt"') from None
    begin = tokenizer.bos_token
    # Templates write the first token themselves, and so do some tokenizers.
    if begin and text.startswith(begin) and tokenizer(text).input_ids[:2] == [tokenizer.bos_token_id] * 2:
        return text.removeprefix(begin)
    return text
