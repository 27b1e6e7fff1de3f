"""Two tenants of one server, each with a `cache_salt`: no text of the one reaches drafts for the other."""

from typing import Any

import openai
import pytest

from tests.e2e.conftest import connect, served_model
from vllm_spec_tools.engines.serving import Server

pytestmark = pytest.mark.e2e

TOKENS = 48
# Words that follow one another nowhere else: without shared text nothing is drafted for the first tokens.
PROMPT = "zebra = quartz(violet, jumble)"


@pytest.fixture(scope="module")
def client(grouped: Server) -> openai.OpenAI:
    return connect(grouped)


def sample(client: openai.OpenAI, salt: str | None, method: str, seed: int, **options: Any) -> tuple[str, list[int]]:
    """Samples text that only its seed tells; returns it, and the draft lengths of its steps."""
    body = {"ignore_eos": True, "vllm_xargs": {"spec_method": method}, **options}
    if salt is not None:
        body["cache_salt"] = salt
    answer = client.completions.create(
        model=served_model(client), prompt=PROMPT, max_tokens=TOKENS, temperature=1.5, seed=seed, extra_body=body
    )
    own = (answer.model_extra or {})["metrics"]["speculative_decoding"] or {}
    return answer.choices[0].text, own.get("per_step_drafted") or []


def test_finished_text_is_drafted_from_in_its_own_scope_only(client: openai.OpenAI) -> None:
    """The same seed has the same text: where it is shared, few steps give it; the other tenant is as if alone."""
    text, alone = sample(client, "a", "suffix", 1)
    again, shared = sample(client, "a", "suffix", 1)
    other, isolated = sample(client, "b", "suffix", 1)
    unsalted, private = sample(client, None, "suffix", 1)
    assert text == again == other == unsalted
    assert sum(shared) > sum(alone) + TOKENS // 2
    assert isolated == private == alone


def test_a_prediction_serves_its_own_request_only(client: openai.OpenAI) -> None:
    """Not even another request of the same tenant drafts from it."""
    text, alone = sample(client, "c", "prediction", 2)
    assert not sum(alone)
    prediction = {"type": "content", "content": text}
    same, predicted = sample(client, "c", "prediction", 2, prediction=prediction)
    assert same == text
    assert sum(predicted) > TOKENS // 2
    for salt in ("c", "d", None):
        assert sample(client, salt, "prediction", 2) == (text, alone)
