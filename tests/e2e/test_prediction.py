"""Predicted outputs, as OpenAI documents them, through `vllm serve`."""

import re
from pathlib import Path
from typing import Any

import openai
import pytest

from vllm_spec_tools.engines.serving import Server

pytestmark = pytest.mark.e2e

PROMPT = "class Person:\n    def get_name(self):\n        return self.name\n\n    def get_street(self"
TOKENS = 48


@pytest.fixture(scope="module")
def server(grouped: Server) -> Server:
    """Its stream is grouped, which changes no count and no text."""
    return grouped


def complete(client: openai.OpenAI, model: str, prediction: Any = None, **options: Any) -> Any:
    body = {"ignore_eos": True, **({} if prediction is None else {"prediction": content(prediction)})}
    options = {"temperature": 0, "max_tokens": TOKENS, **options}
    return client.completions.create(model=model, prompt=PROMPT, extra_body=body, **options)


def content(text: Any) -> dict[str, Any]:
    return {"type": "content", "content": text}


@pytest.fixture(scope="module")
def text(client: openai.OpenAI, model: str) -> str:
    """The response without a prediction."""
    return complete(client, model).choices[0].text


def counts(answer: Any) -> tuple[int, int]:
    details = answer.usage.completion_tokens_details
    return details.accepted_prediction_tokens, details.rejected_prediction_tokens


def test_what_comes_as_predicted_takes_few_steps(client: openai.OpenAI, model: str, text: str) -> None:
    for prediction in (text, [{"type": "text", "text": text[:40]}, {"type": "text", "text": text[40:]}]):
        answer = complete(client, model, prediction)
        assert answer.choices[0].text == text
        assert counts(answer) == (TOKENS, 0)
        own = answer.model_extra["metrics"]["speculative_decoding"]
        assert own["num_accepted_draft_tokens"] == own["num_draft_tokens"] >= TOKENS * 8 // 9 - 1


def test_the_example_of_the_documentation_runs(
    client: openai.OpenAI, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs/prediction.md").read_text()
    [example] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(example, {"client": client, "model": model, "code": PROMPT})
    assert re.search(r"accepted_prediction_tokens=\d+.*rejected_prediction_tokens=\d+", capsys.readouterr().out)


def test_an_edit_is_bridged_and_a_useless_prediction_changes_nothing(
    client: openai.OpenAI, model: str, text: str
) -> None:
    edited = complete(client, model, text[:20] + "EDITED" + text[26:])
    assert edited.choices[0].text == text
    assert counts(edited)[0] > TOKENS // 4
    useless = complete(client, model, "Nothing of this is in the output. " * 20)
    assert useless.choices[0].text == text
    accepted, rejected = counts(useless)
    assert accepted < 8 < rejected


def test_a_stream_counts_as_it_goes(client: openai.OpenAI, model: str, text: str) -> None:
    stream = complete(
        client, model, text, stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True}
    )
    so_far = [(chunk.usage.completion_tokens, *counts(chunk)) for chunk in stream]
    assert so_far[-1] == (TOKENS, TOKENS, 0)
    assert all(accepted == tokens and accepted + rejected == TOKENS for tokens, accepted, rejected in so_far)
