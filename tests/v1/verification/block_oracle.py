"""Block verification, one request at a time and written to be read; with fractions it is exact.

A model is a function of a tuple of tokens that gives a tuple of probabilities.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np


def positive_part(p, q, weight=1):
    return [max(weight * own - other, 0) for own, other in zip(p, q, strict=True)]


def norm(values, otherwise):
    """The distribution in proportion to `values`; `otherwise` if all are 0."""
    total = sum(values)
    return [value / total for value in values] if total else list(otherwise)


def weights_and_thresholds(p, q, drafts):
    """w_0 to w_n, and h_1 to h_n: how likely the test of each number of tokens passes.

    Args:
        p: n + 1 distributions.
        q: n distributions.
        drafts: n tokens, possible by q.
    """
    weights = [1]
    for i, x in enumerate(drafts):
        weights.append(min(1, weights[-1] * (p[i][x] / q[i][x])))
    thresholds = []
    for i in range(1, len(drafts)):
        left = sum(positive_part(p[i], q[i], weights[i]))
        thresholds.append(1 if weights[i] == 1 else left / (left + 1 - weights[i]))
    return weights, [*thresholds, *weights[1:][-1:]]


def next_token(p, q, num_accepted, num_drafts, weights):
    """The distribution of the token after the accepted ones."""
    if num_accepted == num_drafts:
        return list(p[num_drafts])
    return norm(positive_part(p[num_accepted], q[num_accepted], weights[num_accepted]), p[num_accepted])


def output_distribution(p, drafts, q):
    """All outputs of one verification and their probabilities, given what was drafted.

    Args:
        p: n + 1 distributions of the target.
        drafts: n tokens.
        q: n distributions that they were drawn from.

    Returns:
        {tuple of output tokens: probability}.
    """
    outputs: Counter[tuple[int, ...]] = Counter()
    weights, thresholds = weights_and_thresholds(p, q, drafts)
    # As many are accepted as the last test that passes says.
    others = 1
    for count, threshold in reversed(list(enumerate([1, *thresholds]))):
        for token, own in enumerate(next_token(p, q, count, len(drafts), weights)):
            if others * threshold * own:
                outputs[(*drafts[:count], token)] += others * threshold * own
        others *= 1 - threshold
    return outputs


@dataclass(frozen=True)
class Drafting:
    """Target, draft and stop rule of drafts."""

    target: Callable[..., Any]  # The model whose text is wanted.
    draft: Callable[..., Any]  # The model that drafts are drawn from.
    goes_on: Callable[..., bool]  # A function of a tuple of drafted tokens that says whether another one is drafted.

    def all_drafts(self, before=()):
        """Every draft, with its probability."""
        if not self.goes_on(before):
            yield before, 1
            return
        for token, probability in enumerate(self.draft(before)):
            if probability:
                for draft, rest in self.all_drafts((*before, token)):
                    yield draft, probability * rest

    def rows(self, draft):
        """p and q along a draft."""
        prefixes = [draft[:i] for i in range(len(draft) + 1)]
        return [self.target(before) for before in prefixes], [self.draft(before) for before in prefixes[:-1]]

    def outputs(self, distribution=output_distribution):
        """Outputs of one verification over all drafts: {tuple of tokens: probability}.

        Args:
            distribution: the algorithm; that of block verification by default.
        """
        outputs: Counter[tuple[int, ...]] = Counter()
        for draft, probability in self.all_drafts():
            p, q = self.rows(draft)
            for output, own in distribution(p, draft, q).items():
                outputs[output] += probability * own
        return outputs

    def texts(self, length, distribution=output_distribution):
        """Texts of `length` tokens whose first ones are the output and whose others are the target's."""
        texts: Counter[tuple[int, ...]] = Counter()
        for output, probability in self.outputs(distribution).items():
            for text, own in continuations(self.target, output[:length], length):
                texts[text] += probability * own
        return texts

    def survival(self, most, distribution=output_distribution):
        """Probabilities that at least 1, 2, ... `most` draft tokens are accepted."""
        outputs = self.outputs(distribution)
        return [sum(own for output, own in outputs.items() if len(output) > i) for i in range(1, most + 1)]


def continuations(target, before, length):
    """Texts of `length` tokens that begin with `before`, with their probability given that."""
    if len(before) == length:
        yield before, 1
        return
    for token, probability in enumerate(target(before)):
        if probability:
            for text, rest in continuations(target, (*before, token), length):
                yield text, probability * rest


def random_model(rng, vocab_size, near=None, zeros=0.25):
    """A model of fractions: small whole numbers in proportion, some of them 0.

    Args:
        rng: numpy's generator.
        vocab_size: entries.
        near: a model whose distribution is repeated in half of the contexts.
        zeros: share of impossible tokens.
    """
    known = {}

    def distribution(context):
        if context not in known:
            weights = rng.integers(1, 8, vocab_size) * (rng.random(vocab_size) >= zeros)
            if not weights.any():
                weights[rng.integers(vocab_size)] = 1
            own = tuple(Fraction(int(weight), int(weights.sum())) for weight in weights)
            known[context] = near(context) if near is not None and rng.random() < 0.5 else own
        return known[context]

    return distribution


def random_drafting(rng, vocab_size, depth, stops=0.0):
    """A pair of models that drafts `depth` tokens, fewer after some of them with probability `stops`."""
    target = random_model(rng, vocab_size)
    draft = random_model(rng, vocab_size, near=target if rng.random() < 0.5 else None)
    ended = {}

    def goes_on(before):
        if before not in ended:
            ended[before] = len(before) >= depth or rng.random() < stops
        return not ended[before]

    return Drafting(target, draft, goes_on)


def floats(rows):
    """[n, vocab_size] float64 of fractions."""
    return np.array([[float(value) for value in row] for row in rows])
