"""From prompts to texts, with the bundled target's tokenizer."""

import pytest

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_plugin.tools.demo import model_path
from vllm_spec_plugin.tools.planner.texts import as_traffic
from vllm_spec_plugin.tools.prompts import GivenPrompt

TARGET = str(model_path("target"))


def chat(*contents: str) -> GivenPrompt:
    messages = [{"role": "user", "content": content} for content in contents]
    return GivenPrompt.model_validate({"messages": messages, "workload": "chat", "where": "line 1"})


def test_options_count_where_a_prompt_says_nothing() -> None:
    given = [
        GivenPrompt(prompt="x = 1"),
        GivenPrompt(prompt="x", max_tokens=5, temperature=0.5, workload="w"),
        GivenPrompt(prompt="x", max_tokens=500),
        GivenPrompt(prompt="x", max_tokens=1),
    ]
    found = as_traffic(given, TARGET, 0.3, 64)
    assert [(one.num_tokens, one.temperature) for one in found] == [(64, 0.3), (5, 0.5), (64, 0.3), (2, 0.3)]
    assert (found[0].text, found[1].workload) == ("x = 1", "w")


def test_what_does_not_fit_the_context_is_told() -> None:
    given = GivenPrompt(prompt="x " * 3000, where="--prompts p, line 7")
    with pytest.raises(UserError, match=r"--prompts p, line 7: \d+ tokens, and 64 to come, .* context is 2048"):
        as_traffic([given], TARGET, 0.0, 64)
