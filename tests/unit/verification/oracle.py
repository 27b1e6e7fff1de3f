"""Algorithm 1 of Leviathan et al., one request at a time and written to be read: the tests' reference."""

import numpy as np


def norm(weights):
    return weights / weights.sum()


def acceptance_probability(p, q, x, lenience=1.0):
    """How likely draft token x is kept."""
    return min(1.0, p[x] / (lenience * q[x])) if q[x] > 0 else 0.0


def residual(p, q):
    """Where a token is recovered from after a rejection; p itself if p = q and nothing can be rejected."""
    left = np.maximum(0.0, p - q)
    return norm(left) if left.sum() > 0 else norm(p)


def output_distribution(target_probs, drafts, draft_probs, lenience=1.0):
    """All outputs of one verification and their probabilities, given what was drafted.

    Args:
        target_probs: [K + 1, vocab_size], p at every position.
        drafts: K draft tokens.
        draft_probs: [K, vocab_size], q at every position.

    Returns:
        {tuple of output tokens: probability}.
    """
    outputs = {}
    reached = 1.0
    for i, (p, q, x) in enumerate(zip(target_probs, draft_probs, drafts, strict=False)):
        keep = acceptance_probability(p, q, x, lenience)
        for token, probability in enumerate(residual(p, q)):
            if reached * (1 - keep) * probability > 0:
                outputs[(*drafts[:i], token)] = reached * (1 - keep) * probability
        reached *= keep
    for token, probability in enumerate(norm(target_probs[len(drafts)])):
        if reached * probability > 0:
            outputs[(*drafts, token)] = reached * probability
    return outputs


def greedy_output(target_probs, drafts):
    """What a greedy request outputs: drafts while they are the argmax, then the argmax."""
    best = [int(p.argmax()) for p in target_probs]
    kept = 0
    while kept < len(drafts) and drafts[kept] == best[kept]:
        kept += 1
    return [*drafts[:kept], best[kept]]
