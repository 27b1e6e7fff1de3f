"""Block verification, one request at a time and written to be read; with fractions it is exact.

A model is a function of a tuple of tokens that gives a tuple of probabilities.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Rule:
    """Block verification; below, what is overridden for token-wise verification."""

    def weights(self, ratios):
        """w_0 to w_n, of p / q of each draft token."""
        found = [1]
        for ratio in ratios:
            found.append(min(1, found[-1] * ratio))
        return found

    def threshold(self, weight, left, is_last):
        """h: how likely the test of a number of tokens passes, given w and r there."""
        if is_last:
            return weight
        return 1 if weight == 1 else left / (left + 1 - weight)

    def decision(self, thresholds):
        """Per number of accepted tokens its probability: that of the last test that passes."""
        found, others = [], 1
        for threshold in reversed(thresholds):
            found.append(others * threshold)
            others *= 1 - threshold
        return [others, *reversed(found)]

    def taken_from(self, weight):
        """What p is multiplied by before q is taken off."""
        return weight


class TokenWise(Rule):
    """Algorithm 1 of Leviathan et al.: tests of one token each, up to the first that fails."""

    def weights(self, ratios):
        return [1, *(min(1, ratio) for ratio in ratios)]

    def decision(self, thresholds):
        found, kept = [], 1
        for threshold in thresholds:
            found.append(kept * (1 - threshold))
            kept *= threshold
        return [*found, kept]

    def taken_from(self, weight):
        return 1


BLOCK, TOKEN = Rule(), TokenWise()


def positive_part(p, q, weight):
    return [max(weight * own - other, 0) for own, other in zip(p, q, strict=True)]


def norm(values, otherwise):
    """The distribution in proportion to `values`; `otherwise` if all are 0."""
    total = sum(values)
    return [value / total for value in values] if total else list(otherwise)


def weights_and_thresholds(p, q, drafts, rule=BLOCK):
    """w_0 to w_n, and h_1 to h_n.

    Args:
        p: n + 1 distributions.
        q: n distributions.
        drafts: n tokens, possible by q.
        rule: the algorithm.
    """
    weights = rule.weights([p[i][x] / q[i][x] for i, x in enumerate(drafts)])
    if isinstance(rule, TokenWise):
        return weights, weights[1:]
    thresholds = []
    for i in range(1, len(drafts) + 1):
        is_last = i == len(drafts)
        left = 0 if is_last else sum(positive_part(p[i], q[i], weights[i]))
        thresholds.append(rule.threshold(weights[i], left, is_last))
    return weights, thresholds


def next_token(p, q, num_accepted, num_drafts, weights, rule=BLOCK):
    """The distribution of the token after the accepted ones."""
    if num_accepted == num_drafts:
        return list(p[num_drafts])
    weight = rule.taken_from(weights[num_accepted])
    return norm(positive_part(p[num_accepted], q[num_accepted], weight), p[num_accepted])


def output_distribution(p, drafts, q, rule=BLOCK):
    """All outputs of one verification and their probabilities, given what was drafted.

    Args:
        p: n + 1 distributions of the target.
        drafts: n tokens.
        q: n distributions that they were drawn from.
        rule: the algorithm.

    Returns:
        {tuple of output tokens: probability}.
    """
    outputs: Counter[tuple[int, ...]] = Counter()
    weights, thresholds = weights_and_thresholds(p, q, drafts, rule)
    for count, probability in enumerate(rule.decision(thresholds)):
        if not probability:
            continue
        for token, own in enumerate(next_token(p, q, count, len(drafts), weights, rule)):
            if own:
                outputs[(*drafts[:count], token)] += probability * own
    return outputs


@dataclass(frozen=True)
class Drafting:
    """How drafts come about."""

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

    def outputs(self, rule=BLOCK):
        """Outputs of one verification over all drafts: {tuple of tokens: probability}."""
        outputs: Counter[tuple[int, ...]] = Counter()
        for draft, probability in self.all_drafts():
            p, q = self.rows(draft)
            for output, own in output_distribution(p, draft, q, rule).items():
                outputs[output] += probability * own
        return outputs

    def texts(self, length, rule=BLOCK):
        """Texts of `length` tokens whose first ones are the output and whose others are the target's."""
        texts: Counter[tuple[int, ...]] = Counter()
        for output, probability in self.outputs(rule).items():
            for text, own in continuations(self.target, output[:length], length):
                texts[text] += probability * own
        return texts

    def survival(self, most, rule=BLOCK):
        """Probabilities that at least 1, 2, ... `most` draft tokens are accepted."""
        outputs = self.outputs(rule)
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
