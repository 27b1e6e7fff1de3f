"""Later turns of conversations as an engine writes them, with the bundled target's chat template."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from vllm_spec_plugin.models import model_path
from vllm_spec_tools.bench.records import LoadRequest
from vllm_spec_tools.engines.inspection import SteppedEngine
from vllm_spec_tools.prompts import load_tokenizer

TOKENIZER = load_tokenizer(str(model_path("target")))
FIRST = LoadRequest("writing", "", 0.0, 9, may_end=True, chat=(("user", "Write."),), turns=("Again.", "More."))
ANSWER = TOKENIZER.encode("Some words.", add_special_tokens=False)


def engine(context: int) -> SteppedEngine:
    config = SimpleNamespace(model_config=SimpleNamespace(max_model_len=context))
    llm = SimpleNamespace(llm_engine=SimpleNamespace(vllm_config=config), get_tokenizer=lambda: TOKENIZER)
    return SteppedEngine(cast(Any, llm), [], lambda prediction: None)


def rendered(*chat: tuple[str, str]) -> str:
    messages = [{"role": role, "content": content} for role, content in chat]
    return str(TOKENIZER.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def test_a_turn_has_the_conversation_with_the_models_own_answers() -> None:
    # The token that ends an answer is not in the next prompt.
    second = engine(2048).next_turn(FIRST, [*ANSWER, TOKENIZER.eos_token_id])
    chat = (("user", "Write."), ("assistant", "Some words."), ("user", "Again."))
    assert (second.prompt, second.chat, second.turns) == (rendered(*chat), chat, ("More.",))
    assert (second.kind, second.num_tokens, second.may_end) == ("writing", 9, True)
    third = engine(2048).next_turn(second, ANSWER)
    assert third.prompt == rendered(*chat, ("assistant", "Some words."), ("user", "More."))
    assert third.next_turn("", lambda messages: "") is None


@pytest.mark.parametrize("room", [0, -1])
def test_a_turn_that_does_not_fit_the_context_is_left_out(room: int) -> None:
    text = rendered(("user", "Write."), ("assistant", "Some words."), ("user", "Again."))
    found = engine(len(TOKENIZER.encode(text)) + FIRST.num_tokens + room).next_turn(FIRST, ANSWER)
    assert (found is None) == (room < 0)
