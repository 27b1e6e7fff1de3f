"""Compares greedy outputs under faults with those of a server without speculation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from loadtests.acceptance.verdicts import Verdict
from loadtests.stream.client import COMPLETIONS
from vllm_spec_plugin.tools.bench.load.agreement import ROUNDING

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


@dataclass(frozen=True)
class Agreement:
    """Comparison of greedy outputs.

    Attributes:
        identical: number of outputs equal to the last token.
        rounding: number of outputs that differ first at two tokens of equal probability, up to rounding.
        wrong: all other differences, in words.
    """

    identical: int
    rounding: int
    wrong: tuple[str, ...]


def compare(
    answers: Sequence[Answer], expected: Sequence[Expected], gap: Callable[[Tokens, tuple[int, int]], float]
) -> Agreement:
    """Compares outputs of answers without an error.

    Args:
        answers: answers, any number per prompt.
        expected: outputs without speculation, by index of the prompt.
        gap: difference of the log-probabilities of two tokens after a text.
    """
    identical = rounding = 0
    wrong = []
    gaps: dict[tuple[int, int, int], float] = {}
    for answer in answers:
        plain = expected[answer.prompt]
        if answer.error:
            continue
        if answer.tokens == plain.tokens:
            identical += 1
            continue
        same = _num_equal(answer.tokens, plain.tokens)
        where = f"prompt {answer.prompt}, token {same + 1}"
        # An output that ends early is wrong.
        if same == min(len(answer.tokens), len(plain.tokens)):
            wrong.append(f"{where}: one of them ends")
            continue
        pair = (answer.tokens[same], plain.tokens[same])
        # Both outputs are equal up to there.
        key = (answer.prompt, same, pair[0])
        if key not in gaps:
            gaps[key] = gap(plain.prompt_tokens + plain.tokens[:same], pair)
        if gaps[key] <= ROUNDING:
            rounding += 1
        else:
            wrong.append(f"{where}: {pair[0]} in place of {pair[1]}, log-probabilities {gaps[key]:.4f} apart")
    return Agreement(identical, rounding, tuple(wrong))


def _num_equal(ours: Tokens, plain: Tokens) -> int:
    for i, (one, other) in enumerate(zip(ours, plain, strict=False)):
        if one != other:
            return i
    return min(len(ours), len(plain))


def agreement_check(part: str, agreement: Agreement) -> Verdict:
    """Checks that greedy outputs are those without speculation."""
    wrong = agreement.wrong
    figures = f"{agreement.identical} identical, {agreement.rounding} differ where two tokens tie, {len(wrong)} wrong"
    if wrong:
        figures += f": {'; '.join(wrong[:_MOST_SHOWN])}"
    passed = not wrong and agreement.identical > 0
    return Verdict(part, "greedy outputs are those without speculation", passed, figures)


class PlainServer:
    """A server without speculation: greedy outputs, and how likely tokens are."""

    def __init__(self, base_url: str, model: str) -> None:
        self._client = httpx.Client(base_url=base_url, trust_env=False, timeout=120.0)
        self._model = model

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

    def gap(self, text: Tokens, pair: tuple[int, int]) -> float:
        """Difference of the log-probabilities of two tokens after a text.

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
