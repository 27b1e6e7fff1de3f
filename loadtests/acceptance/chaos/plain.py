"""A server without speculation, as the measure of what is said with it."""

from collections.abc import Sequence
from typing import Any

import httpx

from loadtests.acceptance.chaos.agreement import Expected, Tokens
from loadtests.acceptance.chaos.crowd import survivor_body
from loadtests.stream.client import COMPLETIONS


class PlainServer:
    """Answers at temperature 0, and says how likely tokens are."""

    def __init__(self, base_url: str, model: str) -> None:
        self._client = httpx.Client(base_url=base_url, trust_env=False, timeout=120.0)
        self._model = model

    def close(self) -> None:
        """Ends the connection."""
        self._client.close()

    def expected(self, prompts: Sequence[str]) -> list[Expected]:
        """What each prompt's output is, one after the other.

        Raises:
            httpx.HTTPError: a request fails.
        """
        choices = [self._choice(survivor_body(self._model, prompt)) for prompt in prompts]
        return [Expected(tuple(choice["prompt_token_ids"]), tuple(choice["token_ids"])) for choice in choices]

    def gap(self, text: Tokens, pair: tuple[int, int]) -> float:
        """How far apart the log-probabilities of two tokens are after a text.

        Raises:
            httpx.HTTPError: the request fails.
        """
        body = {
            "model": self._model,
            "prompt": list(text),
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": 2,
            "logprob_token_ids": list(pair),
            "return_tokens_as_token_ids": True,
        }
        told = self._choice(body)["logprobs"]["top_logprobs"][0]
        one, other = (float(told[f"token_id:{token}"]) for token in pair)
        return abs(one - other)

    def _choice(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = self._client.post(COMPLETIONS, json=body)
        answer.raise_for_status()
        choice: dict[str, Any] = answer.json()["choices"][0]
        return choice
