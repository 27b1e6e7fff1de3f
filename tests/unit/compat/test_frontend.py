"""Changes of the plugin in vLLM's frontend: predictions, refusals; tests/e2e has streams and ends of servers."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import SamplingParams

from vllm_spec_plugin.compat import openai_api
from vllm_spec_plugin.compat.early_refusal import checking
from vllm_spec_plugin.compat.frontend import _checked
from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.config.request_options import check_options
from vllm_spec_plugin.register import frontend as registered

KEY = "spec_prediction"


def rendered(request: Any, tokenize: openai_api.Tokenize, meanwhile: Any = lambda: None, served: bool = True) -> Any:
    """Renders a request as vLLM's server does; `meanwhile` is called from its event loop."""

    async def original(serving: Any, request: Any) -> str:
        return "rendered"

    async def serve() -> Any:
        render = openai_api._rendering(KEY, lambda _: served, tokenize, original)
        asyncio.get_running_loop().call_later(0.01, meanwhile)
        return await render(serving, request)

    config = SimpleNamespace(speculative_config=None, model_config=SimpleNamespace(max_model_len=9))
    with ThreadPoolExecutor(1) as executor:
        renderer = SimpleNamespace(tokenizer=None, _executor=executor)
        serving = SimpleNamespace(engine_client=SimpleNamespace(vllm_config=config), renderer=renderer)
        return asyncio.run(serve())


def a_request(prediction: Any = None, xargs: Any = None, beam: bool = False) -> Any:
    extra = {} if prediction is None else {"prediction": prediction}
    return SimpleNamespace(vllm_xargs=xargs, model_extra=extra, use_beam_search=beam)


def letters(given: Any, tokenizer: Any, max_model_len: int) -> list[int]:
    text = given["prediction"] if isinstance(given, dict) else given
    if not isinstance(text, str):
        raise ValueError("no text")
    return [ord(letter) for letter in text]


def test_the_event_loop_serves_others_while_a_prediction_is_tokenized() -> None:
    has_served = threading.Event()

    def tokenize(given: Any, tokenizer: Any, max_model_len: int) -> list[int]:
        assert has_served.wait(10)
        return letters(given, tokenizer, max_model_len)

    request = a_request("ab", {"spec": "off"})
    assert rendered(request, tokenize, has_served.set) == "rendered"
    assert request.vllm_xargs == {"spec": "off", KEY: [97, 98]}


@pytest.mark.parametrize(
    ("request_", "served", "xargs"),
    [
        (a_request(xargs={KEY: "a"}), True, {KEY: [97]}),
        (a_request("a", beam=True), True, None),
        (a_request("a"), False, None),
        (a_request(7), False, None),
        (a_request(), True, None),
    ],
)
def test_whose_predictions_are_read(request_: Any, served: bool, xargs: Any) -> None:
    rendered(request_, letters, served=served)
    assert request_.vllm_xargs == xargs


@pytest.mark.parametrize("request_", [a_request(7), a_request("a", {KEY: "b"})])
def test_wrong_ones_are_refused_before_a_stream_begins(request_: Any) -> None:
    with pytest.raises(VLLMValidationError, match=r"no text|allowed: one of them"):
        rendered(request_, letters)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (ChatCompletionRequest, {"messages": [{"role": "user", "content": "a"}]}),
        (CompletionRequest, {"prompt": "a"}),
        (ResponsesRequest, {"input": "a"}),
    ],
)
def test_true_does_not_become_a_number(model: Any, text: dict[str, Any]) -> None:
    """vLLM's models read it as 1, an allowed draft length."""
    openai_api._keep_booleans()
    given = {"spec_tokens": True, "spec_prediction": [False, 1], "other": 1, "another": "a", "third": 0.5}
    request = model.model_validate({"model": "m", **text, "vllm_xargs": given})
    assert repr(request.vllm_xargs) == repr(given)
    with pytest.raises(ValueError, match="got true"):
        check_options(request.vllm_xargs, 8, ("ngram",))


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
        checked = _checked(registered.is_ours, registered._vllm_refuses, registered._check_request)
        monkeypatch.setattr(SamplingParams, "_validate_spec_decode", checked(stock))
    speculative: Any = SimpleNamespace(num_speculative_tokens=4)
    config = parse_config({"proposer": {"method": "suffix"}}, "a.yaml")
    registered.attach(speculative, config, vllm_verifies=True, vllm_refuses=True)
    return SimpleNamespace(engine_client=SimpleNamespace(vllm_config=SimpleNamespace(speculative_config=speculative)))


def answer(serving, kind, **fields):
    async def original(self, request):
        return "served"

    request = kind(**REQUIRED[kind], stream=True, **fields)
    return asyncio.run(checking(registered.is_ours)(original)(serving, request))


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
