"""Draws requests to vLLM's OpenAI API, with any of the parameters that `tests/parameters` says are served.

A parameter is drawn by itself, so most requests have several. Some combinations are refused by vLLM, with drafts and
without; a few values are wrong on purpose.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

ENDPOINTS = ("completions", "chat", "responses")
_SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["self", "value"]}, "size": {"type": "boolean"}},
    "required": ["name", "size"],
    "additionalProperties": False,
}
_TOOLS = [{"type": "function", "function": {"name": "get_value", "parameters": _SCHEMA}}]
_TAG = json.dumps(
    {
        "type": "structural_tag",
        "format": {
            "type": "tag",
            "begin": "<call>",
            "content": {"type": "regex", "pattern": "[a-z]+"},
            "end": "</call>",
        },
    }
)
_STRUCTURES: tuple[dict[str, Any], ...] = (
    {"json": _SCHEMA},
    {"regex": r"(self\.(name|value|size) = [a-z]{1,4}\n){2,4}"},
    {"choice": ["self.name", "self.value", "self.valuation"]},
    {"grammar": 'root ::= "return " ("self" | "value") "\\n"'},
    {"json_object": True},
    {"json": _SCHEMA, "disable_any_whitespace": True},
    {"json": _SCHEMA, "whitespace_pattern": " ?"},
    {"json": {"type": "object", "properties": {"a": {"type": "integer"}}}, "disable_additional_properties": True},
    {"structural_tag": _TAG},
)
_FORMAT = {"type": "json_schema", "json_schema": {"name": "value", "schema": _SCHEMA}}
_GRAMMARS = {"structured_outputs", "response_format", "tool_choice", "text"}
_EXCLUDE = ("allowed_token_ids", "bad_words", "min_tokens", "stop_token_ids")
_WORDS = ("self", "return", "(", "):", "\n", "name", "def ", " = ", "e")


@dataclass(frozen=True)
class Case:
    """A request.

    Attributes:
        endpoint: one of `ENDPOINTS`.
        body: the request without `model`.
        drafting: what of the body is about drafts, and absent without them.
        leaves_after: chunks of a stream, or twentieths of a second, after which the client leaves; None stays.
    """

    endpoint: str
    body: dict[str, Any]
    drafting: dict[str, Any]
    leaves_after: int | None = None

    @property
    def with_drafts(self) -> dict[str, Any]:
        """The body of the request."""
        return self.body | self.drafting

    @property
    def without_drafts(self) -> dict[str, Any]:
        """The body of the same request without drafts."""
        return self.body | {"vllm_xargs": {"spec": "off"}}

    @property
    def is_greedy(self) -> bool:
        """Whether its outputs are the target's likeliest."""
        return self.body["temperature"] == 0

    @property
    def is_seeded(self) -> bool:
        """Whether its outputs are the seed's; vLLM's beam search has none."""
        return "seed" in self.body and "use_beam_search" not in self.body


class Cases:
    """Draws requests."""

    def __init__(
        self, seed: int, prompts: Sequence[Sequence[int]], texts: Sequence[str], num_draft_tokens: int
    ) -> None:
        """Draws the same requests for the same arguments.

        Args:
            seed: of all draws.
            prompts: as token ids.
            texts: of chats, and predictions.
            num_draft_tokens: the server's maximum.
        """
        self._rng, self._prompts, self._texts, self._most = random.Random(seed), prompts, texts, num_draft_tokens
        self._tokens = sorted({token for prompt in prompts for token in prompt})

    def draw(self, methods: Sequence[str], *, takes_predictions: bool) -> Case:
        """Draws a request to a server whose proposers have these methods."""
        rng = self._rng
        [endpoint] = rng.choices(ENDPOINTS, [10, 5, 2])
        body: dict[str, Any] = {"temperature": 0 if rng.random() < 0.6 else round(rng.uniform(0.1, 1.5), 2)}
        body |= self._drawn(self._shared)
        if endpoint == "responses":
            body |= self._drawn(self._of_responses) | {"input": rng.choice(self._texts), "store": False}
            body["max_output_tokens"] = self._length()
        else:
            body |= {"max_tokens": self._length(), "return_token_ids": True} | self._drawn(self._of_both)
            if rng.random() < 0.2:
                body["min_tokens"] = rng.randrange(body["max_tokens"] + (rng.random() < 0.9))
        if {"allowed_token_ids", "min_tokens", "stop_token_ids"} <= body.keys() and rng.random() < 0.5:
            # Nothing may be left while stop tokens are held back.
            body["stop_token_ids"] = body["allowed_token_ids"][:40]
        if endpoint == "completions":
            body |= {"prompt": list(rng.choice(self._prompts))} | self._drawn(self._of_completions)
        if endpoint == "chat":
            body |= {"messages": [{"role": "user", "content": rng.choice(self._texts)}]} | self._drawn(self._of_chats)
            body |= {"tools": _TOOLS} if "tool_choice" in body else {}
            body |= {"logprobs": True} if "top_logprobs" in body or "logprob_token_ids" in body else {}
        elif "logprob_token_ids" in body and endpoint == "completions" and rng.random() < 0.7:
            body["logprobs"] = len(body["logprob_token_ids"])
        if _GRAMMARS & body.keys():
            # Else nothing may be left to sample, and vLLM ends the request with status 500: docs/parameters.md.
            body = {name: value for name, value in body.items() if name not in _EXCLUDE}
        body["stream"] = rng.random() < 0.3
        leaves = rng.random() < (0.2 if body["stream"] else 0.03)
        if body["stream"] and endpoint != "responses":
            body["stream_options"] = {"include_usage": rng.random() < 0.8}
        return Case(
            endpoint,
            body,
            self._drafting(methods, takes_predictions and endpoint != "responses"),
            rng.randrange(1, 6) if leaves else None,
        )

    def _drawn(self, draws: dict[str, tuple[float, Callable[[], Any]]]) -> dict[str, Any]:
        return {name: draw() for name, (chance, draw) in draws.items() if self._rng.random() < chance}

    def _length(self) -> int:
        return self._rng.choice((1, 1, 2, 3, 5, 8, 13, 21, 34))

    def _some(self, values: Sequence[Any], most: int) -> list[Any]:
        return self._rng.sample(values, self._rng.randint(1, min(most, len(values))))

    def _drafting(self, methods: Sequence[str], takes_predictions: bool) -> dict[str, Any]:
        rng = self._rng
        options: tuple[dict[str, Any], ...] = (
            {},
            {"spec": "on"},
            {"spec": "off"},
            {"spec_tokens": rng.randint(1, self._most)},
            {"spec_method": rng.choice(methods)},
            {"spec_tokens": self._most + 1},
            {"spec": "of"},
        )
        [xargs] = rng.choices(options, [40, 5, 3, 25, 15, 1, 1])
        drafting = {"vllm_xargs": dict(xargs)} if xargs else {}
        if takes_predictions and rng.random() < 0.6:
            text = rng.choice(self._texts)
            if rng.random() < 0.5:
                drafting["prediction"] = {"type": "content", "content": text}
            else:
                drafting.setdefault("vllm_xargs", {})["spec_prediction"] = text
        return drafting

    @property
    def _shared(self) -> dict[str, tuple[float, Callable[[], Any]]]:
        """Parameters of all endpoints, each with its chance."""
        rng = self._rng
        return {
            "top_p": (0.15, lambda: round(rng.uniform(0.05, 1), 2)),
            "top_k": (0.15, lambda: rng.choice((-1, 0, 1, 2, 10, 500))),
            "min_p": (0.08, lambda: rng.choice((0.0, 0.05, 0.5, 1.0))),
            "presence_penalty": (0.15, lambda: round(rng.uniform(-2, 2), 1)),
            "frequency_penalty": (0.15, lambda: round(rng.uniform(-2, 2), 1)),
            "repetition_penalty": (0.15, lambda: round(rng.uniform(0.7, 1.6), 1)),
            "seed": (0.4, lambda: rng.randrange(2**31)),
            "stop": (0.15, lambda: rng.choice((rng.choice(_WORDS), self._some(_WORDS, 3)))),
            "stop_token_ids": (0.15, lambda: self._some(self._tokens, 40)),
            "include_stop_str_in_output": (0.1, lambda: rng.random() < 0.5),
            "ignore_eos": (0.4, lambda: rng.random() < 0.8),
            "skip_special_tokens": (0.1, lambda: rng.random() < 0.5),
            "logit_bias": (0.08, lambda: {str(t): round(rng.uniform(-9, 9), 1) for t in self._some(self._tokens, 30)}),
            "structured_outputs": (0.1, lambda: dict(rng.choice(_STRUCTURES))),
            "cache_salt": (0.1, lambda: rng.choice("ab")),
            "user": (0.05, lambda: "a"),
            "priority": (0.02, lambda: 0),
            "request_id": (0.05, lambda: f"{rng.getrandbits(64):x}"),
            "session_id": (0.05, lambda: rng.choice("ab")),
        }

    @property
    def _of_both(self) -> dict[str, tuple[float, Callable[[], Any]]]:
        """Parameters of completions and chats, each with its chance."""
        rng = self._rng
        return {
            "n": (0.1, lambda: rng.randint(1, 3)),
            "allowed_token_ids": (0.1, lambda: self._some(self._tokens, rng.choice((3, 300)))),
            "bad_words": (0.12, lambda: self._some([word.strip() or "x" for word in _WORDS], 4)),
            "prompt_logprobs": (0.08, lambda: rng.randrange(4)),
            "logprob_token_ids": (0.08, lambda: self._some(self._tokens, 6)),
            "spaces_between_special_tokens": (0.05, lambda: rng.random() < 0.5),
            "return_tokens_as_token_ids": (0.1, lambda: True),
            "truncate_prompt_tokens": (0.05, lambda: rng.choice((-1, 1, 30))),
            "truncation_side": (0.03, lambda: rng.choice(("left", "right"))),
            "add_special_tokens": (0.05, lambda: rng.random() < 0.5),
            "repetition_detection": (0.08, lambda: {"max_pattern_size": 6, "min_pattern_size": 1, "min_count": 2}),
            "stream_interval": (0.1, lambda: rng.randint(1, 5)),
            "use_beam_search": (0.02, lambda: True),
            "length_penalty": (0.02, lambda: 0.8),
            "thinking_token_budget": (0.01, lambda: 3),
            "response_format": (0.04, lambda: _FORMAT),
        }

    @property
    def _of_completions(self) -> dict[str, tuple[float, Callable[[], Any]]]:
        """Parameters of completions, each with its chance."""
        rng = self._rng
        return {
            "logprobs": (0.25, lambda: rng.randrange(6)),
            "echo": (0.1, lambda: True),
            "suffix": (0.005, lambda: "x"),
        }

    @property
    def _of_chats(self) -> dict[str, tuple[float, Callable[[], Any]]]:
        """Parameters of chats, each with its chance."""
        rng = self._rng
        return {
            "logprobs": (0.1, lambda: rng.random() < 0.8),
            "top_logprobs": (0.2, lambda: rng.randrange(6)),
            "echo": (0.05, lambda: True),
            "max_completion_tokens": (0.1, self._length),
            "tool_choice": (0.1, lambda: rng.choice(({"type": "function", "function": {"name": "get_value"}}, "none"))),
            "add_generation_prompt": (0.05, lambda: rng.random() < 0.5),
            "continue_final_message": (0.03, lambda: False),
            "chat_template_kwargs": (0.03, lambda: {"unused": 1}),
            "include_reasoning": (0.05, lambda: rng.random() < 0.5),
            "parallel_tool_calls": (0.03, lambda: rng.random() < 0.5),
            "reasoning_effort": (0.03, lambda: "low"),
        }

    @property
    def _of_responses(self) -> dict[str, tuple[float, Callable[[], Any]]]:
        """Parameters of responses, each with its chance."""
        rng = self._rng
        return {
            "include": (0.2, lambda: ["message.output_text.logprobs"]),
            "top_logprobs": (0.2, lambda: rng.randrange(6)),
            "instructions": (0.2, lambda: rng.choice(self._texts)[:80]),
            "text": (0.1, lambda: {"format": {"type": "json_schema", "name": "value", "schema": _SCHEMA}}),
            "metadata": (0.05, lambda: {"a": "b"}),
            "truncation": (0.05, lambda: "auto"),
        }
