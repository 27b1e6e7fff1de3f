"""Requests of clients, and how they are read."""

from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, model_validator

from vllm_spec_tools.mock_server.text import tokenize

# What a chat gets that names no limit; vLLM would go on to the end of the context.
_CHAT_TOKENS = 128
_COMPLETION_TOKENS = 16


@dataclass(frozen=True)
class Generation:
    """A checked request of either API.

    Attributes:
        prompt: token ids, at least one.
        max_tokens: how many tokens it gets; a mock text does not end by itself.
        include_usage: whether a last chunk has the usage.
        speculates: whether tokens are drafted; not with `"vllm_xargs": {"spec": "off"}`, the plugin's option.
    """

    model: str
    prompt: tuple[int, ...]
    max_tokens: int
    stream: bool
    include_usage: bool
    continuous_usage: bool
    return_token_ids: bool
    speculates: bool = True


class StreamOptions(BaseModel):
    """`stream_options`."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class _Request(BaseModel):
    """What both APIs have. Other parameters are accepted and do nothing, `ignore_eos` and `temperature` among them."""

    model: str
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = False
    n: Annotated[int, Field(ge=1, le=1)] | None = 1
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    vllm_xargs: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _check_stream_options(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream options can only be defined when `stream=True`")
        return self

    def _generation(self, prompt: tuple[int, ...], max_tokens: int) -> Generation:
        options = self.stream_options or StreamOptions()
        return Generation(
            model=self.model,
            prompt=prompt,
            max_tokens=max_tokens,
            stream=bool(self.stream),
            include_usage=bool(options.include_usage),
            # As in vLLM: without the last usage there is none on the way.
            continuous_usage=bool(options.include_usage and options.continuous_usage_stats),
            return_token_ids=bool(self.return_token_ids),
            speculates=(self.vllm_xargs or {}).get("spec") != "off",
        )


class CompletionRequest(_Request):
    """`POST /v1/completions`."""

    prompt: Annotated[str, Field(min_length=1)] | Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None

    def generation(self) -> Generation:
        """The request in the words of both APIs."""
        # Blanks alone are a prompt too.
        prompt = (tokenize(self.prompt) or (0,)) if isinstance(self.prompt, str) else tuple(self.prompt)
        return self._generation(prompt, self.max_tokens or _COMPLETION_TOKENS)


class TextPart(BaseModel):
    """A part of a message."""

    text: str


class Message(BaseModel):
    """A message of a chat."""

    role: str
    content: str | list[TextPart] | None = None

    def text(self) -> str:
        """Returns role and content, in place of a chat template."""
        parts = self.content if isinstance(self.content, str) else " ".join(part.text for part in self.content or ())
        return f"<{self.role}> {parts}"


class ChatRequest(_Request):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None

    def generation(self) -> Generation:
        """The request in the words of both APIs."""
        prompt = tokenize(" ".join([*(message.text() for message in self.messages), "<assistant>"]))
        return self._generation(prompt, self.max_completion_tokens or self.max_tokens or _CHAT_TOKENS)
