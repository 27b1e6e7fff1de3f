"""Greedy answers, and a server without speculation that says what they should be."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from loadtests.stream.client import COMPLETIONS

NUM_TOKENS = 96
Tokens = tuple[int, ...]


def greedy_body(model: str, prompt: str) -> dict[str, Any]:
    """A request for exactly `NUM_TOKENS` tokens at temperature 0."""
    return {
        "model": model,
        "prompt": prompt,
        "max_tokens": NUM_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
    }


@dataclass(frozen=True)
class Answer:
    """The response to a request whose client stayed to the end.

    Attributes:
        prompt: index of the prompt.
        error: empty for success.
    """

    prompt: int
    tokens: Tokens
    error: str = ""


@dataclass(frozen=True)
class Expected:
    """The greedy output of a prompt without speculation, as token ids."""

    prompt_tokens: Tokens
    tokens: Tokens


class PlainServer:
    """A server without speculation: greedy outputs, and how likely tokens are."""

    def __init__(self, base_url: str, model: str) -> None:
        self._client = httpx.Client(base_url=base_url, trust_env=False, timeout=120.0)
        self._model = model
        # Many outputs differ at the same position.
        self.top_two = functools.cache(self._top_two)

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()

    def expected(self, prompts: Sequence[str]) -> list[Expected]:
        """The greedy output of each prompt, one after the other.

        Raises:
            httpx.HTTPError: a request fails.
        """
        choices = [self._choice(greedy_body(self._model, prompt)) for prompt in prompts]
        return [Expected(tuple(choice["prompt_token_ids"]), tuple(choice["token_ids"])) for choice in choices]

    def _top_two(self, text: Tokens) -> dict[int, float]:
        """Log-probabilities of the two most likely tokens after a text, by token id.

        Raises:
            httpx.HTTPError: the request fails.
        """
        body = {"model": self._model, "prompt": list(text), "max_tokens": 1, "temperature": 0}
        body |= {"logprobs": 2, "return_tokens_as_token_ids": True}
        found = self._choice(body)["logprobs"]["top_logprobs"][0]
        return {int(token.removeprefix("token_id:")): float(value) for token, value in found.items()}

    def _choice(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = self._client.post(COMPLETIONS, json=body)
        answer.raise_for_status()
        choice: dict[str, Any] = answer.json()["choices"][0]
        return choice
