"""vLLM's OpenAI-compatible API: requests' predicted outputs, and their counts in the responses' usage."""

import asyncio
import functools
import inspect
import json
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from vllm_spec_plugin.compat.frontend import bad_request
from vllm_spec_plugin.compat.patching import wrap

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import (
        ChatCompletionRequest,
        CompletionRequest,
        ModelConfig,
        OpenAIServingChat,
        OpenAIServingCompletion,
        RequestOutput,
        SamplingParams,
        SpeculativeConfig,
    )

_PREDICTION, _DETAILS, _RESULTS = "prediction", "completion_tokens_details", "result_generator"
_DATA = "data: "

# Returns the tokens of a prediction, which is in a dictionary of its own if it is of OpenAI's API. Further arguments:
# tokenizer, maximum tokens of a request. Raises ValueError.
Tokenize = Callable[[Any, Any, int], list[int]]
# Whether a server with a speculative configuration drafts from predictions.
IsServed: TypeAlias = "Callable[[SpeculativeConfig | None], bool]"


class Count(Protocol):
    """Counts a prediction's tokens in outputs."""

    def __init__(self, prediction: Sequence[int]) -> None:
        """Takes the predicted tokens."""

    def note(self, choice: Hashable, tokens: Iterable[int]) -> None:
        """Counts new tokens of a choice."""

    def details(self) -> dict[str, int]:
        """Returns fields of `completion_tokens_details` so far."""
        ...


def patch(key: str, is_served: IsServed, tokenize: Tokenize, count: type[Count]) -> None:
    """Makes vLLM tokenize requests' predicted outputs, send them to the engine, and count them in the responses' usage.

    Args:
        key: key of `SamplingParams.extra_args` with the tokens.
        is_served: whether a server with a `SpeculativeConfig` drafts from predictions; others drop them.
        tokenize: checks and tokenizes a prediction.
        count: counts a prediction's tokens in outputs.
    """
    from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
    from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion
    from vllm.sampling_params import SamplingParams

    _keep_booleans()
    wrap(SamplingParams, "verify", functools.partial(_tokenizing, key, is_served, tokenize))
    rendering = functools.partial(_rendering, key, is_served, tokenize)
    wrap(OpenAIServingChat, "render_chat_request", rendering)
    wrap(OpenAIServingCompletion, "render_completion_request", rendering)

    def counting(make: Callable[..., Any]) -> Callable[..., Any]:
        return functools.partial(_counting, key, is_served, count, make)

    wrap(OpenAIServingChat, "chat_completion_full_generator", counting(_chat))
    wrap(OpenAIServingChat, "chat_completion_stream_generator", counting(_stream))
    wrap(OpenAIServingCompletion, "completion_stream_generator", counting(_stream))
    wrap(OpenAIServingCompletion, "request_output_to_completion_response", counting(_batch))


@functools.cache
def _keep_booleans() -> None:
    """Keeps true and false in `vllm_xargs` of HTTP requests: vLLM's models would make them 1 and 0."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest

    value = bool | str | int | float
    for model in (ChatCompletionRequest, CompletionRequest, ResponsesRequest):
        model.model_fields["vllm_xargs"].annotation = dict[str, value | list[value]] | None
        model.model_rebuild(force=True)


def _rendering(key: str, is_served: IsServed, tokenize: Tokenize, original: Callable[..., Any]) -> Callable[..., Any]:
    """Tokenizes a request's prediction beside its prompt, in the thread of the latter: the event loop serves others."""
    from vllm.exceptions import VLLMValidationError

    async def render(
        self: "OpenAIServingChat | OpenAIServingCompletion", request: "ChatCompletionRequest | CompletionRequest"
    ) -> Any:
        rendered = await original(self, request)
        given: dict[str, Any] = request.vllm_xargs or {}
        prediction = (request.model_extra or {}).get(_PREDICTION)
        config = self.engine_client.vllm_config
        # Beam search makes requests of its own, without predictions.
        if request.use_beam_search or not is_served(config.speculative_config):
            return rendered
        if prediction is not None and key in given:
            raise VLLMValidationError(f"got {_PREDICTION} and vllm_xargs.{key}; allowed: one of them")
        if prediction is not None or key in given:
            with bad_request(_PREDICTION):
                wanted = given[key] if prediction is None else {_PREDICTION: prediction}
                # The event loop would wait a second for a megabyte of text.
                arguments = wanted, self.renderer.tokenizer, config.model_config.max_model_len
                loop = asyncio.get_running_loop()
                tokens: Any = await loop.run_in_executor(self.renderer._executor, tokenize, *arguments)
            request.vllm_xargs = {**given, key: tokens}
        return rendered

    return render


def _tokenizing(
    key: str, is_served: IsServed, tokenize: Tokenize, original: Callable[..., None]
) -> Callable[..., None]:
    def verify(
        self: "SamplingParams",
        model_config: "ModelConfig",
        speculative_config: "SpeculativeConfig | None",
        structured_outputs_config: Any,
        tokenizer: Any,
    ) -> None:
        original(self, model_config, speculative_config, structured_outputs_config, tokenizer)
        extra = self.extra_args or {}
        if key not in extra:
            return
        others = {name: value for name, value in extra.items() if name != key}
        tokens: list[int] = []
        if is_served(speculative_config):
            with bad_request(_PREDICTION):
                tokens = tokenize(extra[key], tokenizer, model_config.max_model_len)
        # A new dictionary: several prompts may share the request's.
        self.extra_args = {**others, key: tokens} if tokens else others or None

    return verify


class _Usage:
    """Counts a prediction's tokens in results, and adds the counts to the response's usage."""

    def __init__(self, counted: Count) -> None:
        self._counted = counted

    def note(self, result: "RequestOutput", prompt: int = 0) -> None:
        """Counts the tokens of a `RequestOutput`: new ones, or all of a response that is not streamed."""
        for output in result.outputs:
            self._counted.note((prompt, output.index), output.token_ids)

    async def noting(self, results: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Counts results and passes them on."""
        async for result in results:
            prompt, output = result if isinstance(result, tuple) else (0, result)
            self.note(output, prompt)
            yield result

    def add_to(self, response: Any) -> None:
        """Adds the counts to a whole response; an error has no usage."""
        from vllm.entrypoints.serve.engine.protocol import CompletionTokenUsageInfo

        if getattr(response, "usage", None) is not None:
            known = getattr(response.usage, _DETAILS) or CompletionTokenUsageInfo()
            setattr(response.usage, _DETAILS, known.model_copy(update=self._counted.details()))

    def added_to(self, chunk: str) -> str:
        """Returns a chunk of a stream, with the counts so far if it has a usage."""
        if '"usage":{' not in chunk:
            return chunk
        body = json.loads(chunk.removeprefix(_DATA))
        body["usage"][_DETAILS] = {**(body["usage"].get(_DETAILS) or {}), **self._counted.details()}
        return f"{_DATA}{json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n"


# Binds a call, and returns it with its request's usage; None if that has no counted prediction.
_Begin = Callable[..., tuple[inspect.BoundArguments, _Usage | None]]


def _counting(
    key: str,
    is_served: IsServed,
    count: type[Count],
    make: Callable[[_Begin, Callable[..., Any]], Callable[..., Any]],
    original: Callable[..., Any],
) -> Callable[..., Any]:
    """Returns the replacement that `make` builds for one of vLLM's functions that create responses."""
    bind = inspect.signature(original).bind

    def begin(*args: Any, **kwargs: Any) -> tuple[inspect.BoundArguments, _Usage | None]:
        call = bind(*args, **kwargs)
        given, request = call.arguments, call.arguments["request"]
        prediction = (request.vllm_xargs or {}).get(key)
        served = is_served(given["self"].engine_client.vllm_config.speculative_config)
        # A text: of an endpoint that does not render requests as the two here do.
        if not isinstance(prediction, list) or request.use_beam_search or not served:
            return call, None
        usage = _Usage(count(prediction))
        if _RESULTS in given:
            given[_RESULTS] = usage.noting(given[_RESULTS])
        return call, usage

    return make(begin, original)


def _chat(begin: _Begin, original: Callable[..., Any]) -> Callable[..., Any]:
    async def chat_completion_full_generator(*args: Any, **kwargs: Any) -> Any:
        call, usage = begin(*args, **kwargs)
        response = await original(*call.args, **call.kwargs)
        if usage is not None:
            usage.add_to(response)
        return response

    return chat_completion_full_generator


def _stream(begin: _Begin, original: Callable[..., Any]) -> Callable[..., Any]:
    async def stream_generator(*args: Any, **kwargs: Any) -> AsyncIterator[str]:
        call, usage = begin(*args, **kwargs)
        async for chunk in original(*call.args, **call.kwargs):
            yield chunk if usage is None else usage.added_to(chunk)

    return stream_generator


def _batch(begin: _Begin, original: Callable[..., Any]) -> Callable[..., Any]:
    def request_output_to_completion_response(*args: Any, **kwargs: Any) -> Any:
        call, usage = begin(*args, **kwargs)
        response = original(*call.args, **call.kwargs)
        if usage is not None:
            for prompt, result in enumerate(call.arguments["final_res_batch"]):
                usage.note(result, prompt)
            usage.add_to(response)
        return response

    return request_output_to_completion_response
