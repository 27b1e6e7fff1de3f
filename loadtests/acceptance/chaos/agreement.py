"""Compares greedy outputs under faults with those of a server without speculation."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from loadtests.acceptance.verdicts import Verdict
from loadtests.stream.client import COMPLETIONS
from vllm_spec_plugin.tools.certify.greedy import first_differences, tolerance_of

NUM_TOKENS = 96
_MOST_SHOWN = 3
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
        tokens: token ids of the output.
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


def agreement_check(
    part: str,
    answers: Sequence[Answer],
    expected: Sequence[Expected],
    top_two: Callable[[Tokens], dict[int, float]],
    dtype: str = "float32",
) -> Verdict:
    """Checks that greedy outputs are those without speculation; answers with an error do not count.

    Args:
        part: part of the test.
        answers: any number per prompt.
        expected: outputs without speculation, by index of the prompt.
        top_two: log-probabilities of the two most likely tokens after a text, by token id.
        dtype: of the served model, which decides the tolerance of ties.
    """
    outputs = [answer.tokens for answer in answers if not answer.error]
    wanted = [expected[answer.prompt] for answer in answers if not answer.error]
    differences = first_differences(
        outputs,
        [one.tokens for one in wanted],
        lambda i, position: top_two(wanted[i].prompt_tokens + wanted[i].tokens[:position]),
        tolerance_of(dtype),
    )
    wrong = [one for one in differences if not one.is_tie]
    identical = len(outputs) - len(differences)
    figures = f"{identical} identical, {len(differences) - len(wrong)} differ where two tokens tie, {len(wrong)} wrong"
    shown = [
        f"output {one.request}, token {one.position + 1}: {one.tokens[0]}, not {one.tokens[1]}, "
        f"{one.logit_gap:.4f} apart"
        for one in wrong[:_MOST_SHOWN]
    ]
    figures += f": {'; '.join(shown)}" if shown else ""
    return Verdict(part, "greedy outputs are those without speculation", not wrong and identical > 0, figures)


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
