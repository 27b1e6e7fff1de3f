"""vLLM's OpenAI-compatible API: requests' predicted outputs, and what their usage says of them."""

import functools
import inspect
import json
from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from typing import Any, Protocol

from vllm_spec_plugin.compat.patching import wrap

_PREDICTION, _DETAILS = "prediction", "completion_tokens_details"
_DATA = "data: "

# A prediction of OpenAI's API: its text. Raises ValueError.
Read = Callable[[Any], str]
# A prediction, in a dictionary of its own if it is of OpenAI's API, tokenizer and most tokens of a text: its tokens.
# Raises ValueError.
Tokenize = Callable[[Any, Any, int], list[int]]


class Count(Protocol):
    """Counts a prediction's tokens in outputs."""

    def __init__(self, given: Any, tokenizer: Any, max_model_len: int) -> None:
        """Takes a prediction that was accepted, tokenizer and most tokens of a text."""

    def note(self, choice: Hashable, tokens: Iterable[int]) -> None:
        """Notes new tokens of a choice."""

    def details(self) -> dict[str, int]:
        """Fields of `completion_tokens_details` so far."""
        ...


def patch(key: str, is_served: Callable[[Any], bool], read: Read, tokenize: Tokenize, count: type[Count]) -> None:
    """Has predicted outputs of requests tokenized, sent to the engine, and counted in the responses' usage.

    Args:
        key: of `SamplingParams.extra_args`, which carries the tokens.
        is_served: whether a server with that `SpeculativeConfig` drafts from predictions; without, they are dropped.
        read: checks a prediction of OpenAI's API, before a stream begins.
        tokenize: checks and tokenizes a prediction.
        count: counts its tokens in outputs.
    """
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest
    from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion
    from vllm.sampling_params import SamplingParams

    wrap(SamplingParams, "verify", functools.partial(_tokenizing, key, is_served, tokenize))
    usage = functools.partial(_Usage, key, is_served, count)
    for request in (ChatCompletionRequest, CompletionRequest):
        wrap(request, "to_sampling_params", functools.partial(_reading, key, read))
    wrap(OpenAIServingChat, "chat_completion_full_generator", functools.partial(_counting_chat, usage))
    for serving, name in (
        (OpenAIServingChat, "chat_completion_stream_generator"),
        (OpenAIServingCompletion, "completion_stream_generator"),
    ):
        wrap(serving, name, functools.partial(_counting_stream, usage))
    wrap(OpenAIServingCompletion, "request_output_to_completion_response", functools.partial(_counting_batch, usage))


def _reading(key: str, read: Read, original: Callable[..., Any]) -> Callable[..., Any]:
    from vllm.exceptions import VLLMValidationError

    def to_sampling_params(self: Any, *args: Any, **kwargs: Any) -> Any:
        params = original(self, *args, **kwargs)
        prediction = (self.model_extra or {}).get(_PREDICTION)
        if prediction is not None:
            given = params.extra_args or {}
            if key in given:
                raise VLLMValidationError(f"got {_PREDICTION} and vllm_xargs.{key}; allowed: one of them")
            try:
                read(prediction)
            except ValueError as error:
                raise VLLMValidationError(str(error), parameter=_PREDICTION) from None
            params.extra_args = {**given, key: {_PREDICTION: prediction}}
        return params

    return to_sampling_params


def _tokenizing(
    key: str, is_served: Callable[[Any], bool], tokenize: Tokenize, original: Callable[..., None]
) -> Callable[..., None]:
    from vllm.exceptions import VLLMValidationError

    def verify(
        self: Any, model_config: Any, speculative_config: Any, structured_outputs_config: Any, tokenizer: Any
    ) -> None:
        original(self, model_config, speculative_config, structured_outputs_config, tokenizer)
        if key not in (self.extra_args or {}):
            return
        others = {name: value for name, value in self.extra_args.items() if name != key}
        tokens: list[int] = []
        if is_served(speculative_config):
            try:
                tokens = tokenize(self.extra_args[key], tokenizer, model_config.max_model_len)
            except ValueError as error:
                # The only one that vLLM's server answers with 400 and the message.
                raise VLLMValidationError(str(error), parameter=_PREDICTION) from None
        # A dictionary of its own: the request's may be that of several prompts.
        self.extra_args = {**others, key: tokens} if tokens else others or None

    return verify


class _Usage:
    """What a response's usage says of its prediction; False if it says nothing."""

    def __init__(
        self, key: str, is_served: Callable[[Any], bool], count: type[Count], serving: Any, request: Any, tokenizer: Any
    ) -> None:
        config = serving.engine_client.vllm_config.speculative_config
        longest = serving.engine_client.vllm_config.model_config.max_model_len
        given = (request.model_extra or {}).get(_PREDICTION)
        if given is None:
            given = (request.vllm_xargs or {}).get(key)
        # Beam search makes requests of its own, without predictions.
        is_counted = given is not None and not request.use_beam_search and is_served(config)
        self._counted = count(given, tokenizer, longest) if is_counted else None

    def __bool__(self) -> bool:
        return self._counted is not None

    def note(self, result: Any, prompt: int = 0) -> None:
        """Notes the tokens of a `RequestOutput`: new ones, or all of a response that is not streamed."""
        assert self._counted is not None
        for output in result.outputs:
            self._counted.note((prompt, output.index), output.token_ids)

    async def noting(self, results: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Passes results on, noted."""
        async for result in results:
            prompt, output = result if isinstance(result, tuple) else (0, result)
            self.note(output, prompt)
            yield result

    def details(self) -> dict[str, int]:
        """Counts of the tokens noted."""
        assert self._counted is not None
        return self._counted.details()

    def add_to(self, response: Any) -> None:
        """Puts the counts into a whole response; an error's has no usage."""
        from vllm.entrypoints.serve.engine.protocol import CompletionTokenUsageInfo

        if getattr(response, "usage", None) is not None:
            known = getattr(response.usage, _DETAILS) or CompletionTokenUsageInfo()
            setattr(response.usage, _DETAILS, known.model_copy(update=self.details()))

    def added_to(self, chunk: str) -> str:
        """A chunk of a stream with the counts so far, if it has a usage."""
        if '"usage":{' not in chunk:
            return chunk
        body = json.loads(chunk.removeprefix(_DATA))
        body["usage"][_DETAILS] = {**(body["usage"].get(_DETAILS) or {}), **self.details()}
        return f"{_DATA}{json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n"


def _counting_chat(usage: Callable[..., _Usage], original: Callable[..., Any]) -> Callable[..., Any]:
    bind = inspect.signature(original).bind

    async def chat_completion_full_generator(*args: Any, **kwargs: Any) -> Any:
        call = bind(*args, **kwargs)
        counted = usage(call.arguments["self"], call.arguments["request"], call.arguments["tokenizer"])
        if not counted:
            return await original(*args, **kwargs)
        call.arguments["result_generator"] = counted.noting(call.arguments["result_generator"])
        response = await original(*call.args, **call.kwargs)
        counted.add_to(response)
        return response

    return chat_completion_full_generator


def _counting_stream(usage: Callable[..., _Usage], original: Callable[..., Any]) -> Callable[..., Any]:
    bind = inspect.signature(original).bind

    async def stream_generator(*args: Any, **kwargs: Any) -> AsyncIterator[str]:
        call = bind(*args, **kwargs)
        counted = usage(call.arguments["self"], call.arguments["request"], call.arguments["tokenizer"])
        if counted:
            call.arguments["result_generator"] = counted.noting(call.arguments["result_generator"])
        async for chunk in original(*call.args, **call.kwargs):
            yield counted.added_to(chunk) if counted else chunk

    return stream_generator


def _counting_batch(usage: Callable[..., _Usage], original: Callable[..., Any]) -> Callable[..., Any]:
    bind = inspect.signature(original).bind

    def request_output_to_completion_response(*args: Any, **kwargs: Any) -> Any:
        call = bind(*args, **kwargs)
        counted = usage(call.arguments["self"], call.arguments["request"], call.arguments["tokenizer"])
        response = original(*args, **kwargs)
        if counted:
            for prompt, result in enumerate(call.arguments["final_res_batch"]):
                counted.note(result, prompt)
            counted.add_to(response)
        return response

    return request_output_to_completion_response
