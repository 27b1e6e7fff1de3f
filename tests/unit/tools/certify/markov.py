"""Speculative decoding of a Markov chain: an engine of which every probability is known."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from vllm_spec_tools.certify.target_probabilities import Floats, Row
from vllm_spec_tools.engines.jobs import JobOutput, Step, Tokens

PROMPT = (9,)
P = np.array([[0.7, 0.2, 0.1], [0.2, 0.5, 0.3], [0.1, 0.3, 0.6]])
Q = np.array([[0.4, 0.4, 0.2], [0.5, 0.3, 0.2], [0.3, 0.3, 0.4]])
# Draft tokens of a step, and tokens of an output.
MOST, LENGTH = 4, 7


class MarkovLaw:
    """The chain's probabilities after any prefix."""

    def __init__(self, probs: Floats = P) -> None:
        self._rows = [Row(np.arange(len(row)), row, 0.0) for row in probs]

    def rows(self, prompt: Tokens, params: Any) -> "MarkovLaw":
        return self

    def get(self, prefix: Tokens) -> Row:
        return self[prefix]

    def __getitem__(self, prefix: Tokens) -> Row:
        return self._rows[prefix[-1] if prefix else 0]

    def __contains__(self, prefix: object) -> bool:
        return True


class Fault(NamedTuple):
    """A fault of a simulated engine.

    Attributes:
        unverified: share of draft tokens that are accepted without being verified.
        after_rejection: the next step goes on from the token that was rejected.
        drafts: whether there are any.
    """

    unverified: float = 0.0
    after_rejection: bool = False
    drafts: bool = True


EXACT = Fault()


def decode(rng: np.random.Generator, fault: Fault = EXACT, probs: Floats = P) -> JobOutput:
    """One output, with random draft lengths."""
    tokens, steps = [int(rng.choice(3, p=probs[0]))], [Step(1)]
    context = tokens[-1]
    while len(tokens) < LENGTH:
        new: list[int] = []
        most = int(rng.integers(min(MOST, LENGTH - len(tokens) - 1) + 1)) if fault.drafts else 0
        drafts = list[int]()
        for _ in range(most):
            drafts.append(int(rng.choice(3, p=Q[drafts[-1] if drafts else context])))
        for draft in drafts:
            is_accepted = rng.random() < probs[context, draft] / Q[context, draft]
            if not is_accepted and rng.random() >= fault.unverified:
                left = np.maximum(probs[context] - Q[context], 0)
                new.append(int(rng.choice(3, p=left / left.sum())))
                context = draft if fault.after_rejection else new[-1]
                break
            new.append(draft)
            context = draft
        else:
            new.append(int(rng.choice(3, p=probs[context])))
            context = new[-1]
        steps.append(Step(len(new), tuple(drafts), len(steps)))
        tokens += new
    return output(tokens, steps)


def output(tokens: list[int], steps: list[Step]) -> JobOutput:
    return JobOutput(tokens, "", "length", None, None, None, steps)


def all_outputs(p: Floats, q: Floats, length: int) -> Iterator[tuple[float, JobOutput]]:
    """Every output of an exact engine that drafts one token per step where there is room, with its probability."""

    def go_on(prob: float, tokens: list[int], steps: list[Step]) -> Iterator[tuple[float, JobOutput]]:
        if len(tokens) == length:
            yield prob, output(tokens, steps)
            return
        row, draft_row = p[tokens[-1]], q[tokens[-1]]
        if len(tokens) == length - 1:
            for token, each in enumerate(row):
                yield from go_on(prob * each, [*tokens, token], [*steps, Step(1, (), len(steps))])
            return
        accepted = np.minimum(row, draft_row)
        left = row - accepted
        for token in range(len(row)):
            # A rejection's probability, times that of the token in its place.
            lacking = np.maximum(draft_row - row, 0)
            for draft, share in enumerate(lacking / lacking.sum()):
                step = Step(1, (draft,), len(steps))
                yield from go_on(prob * left[token] * share, [*tokens, token], [*steps, step])
            for bonus, each in enumerate(p[token]):
                step = Step(2, (token,), len(steps))
                yield from go_on(prob * accepted[token] * each, [*tokens, token, bonus], [*steps, step])

    for first, each in enumerate(p[0]):
        yield from go_on(float(each), [first], [Step(1)])
