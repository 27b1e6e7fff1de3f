"""Requests that a server with drafts does not serve are refused before their streams begin, and no others."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import SamplingParams

from vllm_spec_plugin.compat.early_refusal import checking
from vllm_spec_plugin.compat.frontend import _checked
from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.register import frontend

REQUIRED: dict[type, dict[str, Any]] = {
    CompletionRequest: {"prompt": "a"},
    ChatCompletionRequest: {"messages": [{"role": "user", "content": "a"}]},
    ResponsesRequest: {"input": "a"},
}
requests = pytest.mark.parametrize("kind", REQUIRED)


@pytest.fixture
def serving(monkeypatch):
    """One of vLLM's classes that answer, on a server where vLLM verifies."""
    stock = SamplingParams._validate_spec_decode
    if not hasattr(stock, "__wrapped__"):
        checked = _checked(frontend.is_ours, frontend._vllm_refuses, frontend._check_request)
        monkeypatch.setattr(SamplingParams, "_validate_spec_decode", checked(stock))
    speculative: Any = SimpleNamespace(num_speculative_tokens=4)
    config = parse_config({"proposer": {"method": "suffix"}}, "a.yaml")
    frontend.attach(speculative, config, vllm_verifies=True, vllm_refuses=True)
    return SimpleNamespace(engine_client=SimpleNamespace(vllm_config=SimpleNamespace(speculative_config=speculative)))


def answer(serving, kind, **fields):
    async def original(self, request):
        return "served"

    request = kind(**REQUIRED[kind], stream=True, **fields)
    return asyncio.run(checking(frontend.is_ours)(original)(serving, request))


@requests
@pytest.mark.parametrize(
    "fields", [{"vllm_xargs": {"spec_tokens": 5}}, {"logit_bias": {"1": 2.0}}, {"temperature": 1.0, "min_p": 0.5}]
)
def test_what_is_not_served_is_refused(serving, kind, fields):
    with pytest.raises(VLLMValidationError):
        answer(serving, kind, **fields)


@requests
def test_others_are_served(serving, kind):
    assert answer(serving, kind) == "served"
    assert answer(serving, kind, temperature=0.0, min_p=0.5, vllm_xargs={"spec_tokens": 4, "other": 1}) == "served"
    if kind is not ResponsesRequest:
        assert answer(serving, kind, use_beam_search=True, logit_bias={"1": 2.0}) == "served"


@requests
def test_servers_without_a_plugin_yaml_are_left_alone(serving, kind):
    serving.engine_client.vllm_config.speculative_config = None
    assert answer(serving, kind, logit_bias={"1": 2.0}) == "served"
