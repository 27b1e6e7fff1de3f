"""Iterative speculative sampling over a tree, one request at a time and written to be read: the tests' reference.

Stratos' notes, section 2.1: SpecInfer's multi-step speculative sampling; over a chain it is algorithm 1 of Leviathan et
al. Rows of p: the text's, then one per node.
"""

from collections import Counter, defaultdict

import numpy as np

from tests.v1.verification.block_oracle import continuations, norm, positive_part
from vllm_spec_plugin.verification.topology import chain


def acceptance_probability(p, q, x, lenience=1):
    """Probability that draft token x is accepted."""
    return min(1, p[x] / (lenience * q[x])) if q[x] > 0 else 0


def residual(p, q):
    """Distribution of the recovered token after a rejection; p itself if p = q and nothing can be rejected."""
    return norm(positive_part(p, q), norm(p, p))


def children(tree, node, tokens):
    """The siblings after `node` (-1: the text) that have a draft token, with their places, by rank."""
    siblings = [n for n, parent in enumerate(tree.parents) if parent == node]
    return [(place, n) for place, n in enumerate(siblings) if tokens[n] != -1]


def output_distribution(tree, p, tokens, q, lenience=1):
    """All outputs of one verification and their probabilities, given what was drafted.

    Args:
        tree: a topology of N nodes.
        p: [N + 1, vocab_size].
        tokens: N draft tokens.
        q: [N, vocab_size], what each was drawn from given its earlier siblings.

    Returns:
        {tuple of output tokens: probability}.
    """
    outputs: Counter[tuple[int, ...]] = Counter()

    def walk(node, output, reached):
        left = p[node + 1]
        for _, child in children(tree, node, tokens):
            keep = acceptance_probability(left, q[child], tokens[child], lenience)
            if reached * keep > 0:
                walk(child, (*output, tokens[child]), reached * keep)
            reached *= 1 - keep
            left = residual(left, q[child])
        for token, probability in enumerate(norm(left, left)):
            if reached * probability > 0:
                outputs[(*output, token)] += reached * probability

    walk(-1, (), 1)
    return outputs


def chain_distribution(p, drafts, q, lenience=1):
    """The same of a chain."""
    return output_distribution(chain(len(drafts)), p, drafts, q, lenience)


def sampled_output(tree, p, tokens, q, uniform, exponential):
    """Verifies one draft with given noise.

    Args:
        uniform: (row, trial) -> a number in [0, 1).
        exponential: (row) -> [vocab_size].

    Returns:
        The output tokens, the row of each, the last accepted node.
    """
    output: list[int] = []
    rows: list[int] = []
    node = -1
    while True:
        row = node + 1
        rows.append(row)
        siblings = children(tree, node, tokens)
        left, accepted = p[row], None
        if all(q[child][tokens[child]] == 1 for _, child in siblings):
            drawn = int((p[row] / exponential(row)).argmax())
            accepted = next((child for _, child in siblings if tokens[child] == drawn), None)
        else:
            for trial, child in siblings:
                if uniform(row, trial) < acceptance_probability(left, q[child], tokens[child]):
                    accepted = child
                    break
                left = residual(left, q[child])
        if accepted is None:
            return [*output, int((np.array(left) / exponential(row)).argmax())], rows, node
        output.append(tokens[accepted])
        node = accepted


def greedy_output(tree, p, tokens):
    """Verifies a greedy draft: output tokens, the row of each, and the last accepted node."""
    output: list[int] = []
    rows: list[int] = []
    node = -1
    while True:
        rows.append(node + 1)
        output.append(int(p[node + 1].argmax()))
        accepted = [child for _, child in children(tree, node, tokens) if tokens[child] == output[-1]]
        if not accepted:
            return output, rows, node
        node = accepted[0]


def all_drafts(tree, draw):
    """Everything that a proposer may draft for `tree`.

    Args:
        draw: (context, earlier siblings' tokens) -> the distribution of the next sibling's token.

    Yields:
        (probability, tokens, q) of each draft.
    """

    def grow(tokens, q, probability):
        node = len(tokens)
        if node == tree.num_nodes:
            yield probability, tokens, np.array(q)
            return
        earlier = [tokens[n] for n in range(node) if tree.parents[n] == tree.parents[node]]
        weights = draw(context(tree, tree.parents[node], tokens), earlier)
        for token in np.flatnonzero(weights):
            yield from grow([*tokens, int(token)], [*q, weights], probability * weights[token])

    yield from grow([], [], 1.0)


def context(tree, node, tokens):
    """The draft tokens up to and with `node`."""
    return () if node == -1 else (*context(tree, tree.parents[node], tokens), tokens[node])


def text_distribution(tree, target, draw, length):
    """Computes the distribution of the next `length` tokens: a verification's output, then tokens of the target.

    Args:
        target: (context) -> p.
        draw: see `all_drafts`.
        length: at least the tree's depth and one.

    Returns:
        {tuple of `length` tokens: probability}.
    """
    texts: defaultdict[tuple[int, ...], float] = defaultdict(float)
    for drafted, tokens, q in all_drafts(tree, draw):
        p = np.array([target(context(tree, node, tokens)) for node in range(-1, tree.num_nodes)])
        for output, probability in output_distribution(tree, p, tokens, q).items():
            for text, rest in continuations(target, output, length):
                texts[text] += drafted * probability * rest
    return texts
