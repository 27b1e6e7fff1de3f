"""Block verification on a CPU: one compiled walk over each draft from its end; `block.py` has the rule."""

import numpy as np
import numpy.typing as npt

from vllm_spec_plugin.jit import Floats, Ints, compiled, compiled_sum

Float32s = npt.NDArray[np.float32]

# Entries that are added in float32; their sums are added in float64.
_CHUNK = 1024


@compiled_sum
def _residual(p: Float32s, q: Float32s, weight: np.float32) -> float:
    """Returns r: the sum over x of max(0, w p(x) - q(x))."""
    total, zero = 0.0, np.float32(0)
    for begin in range(0, len(p), _CHUNK):
        # Slices: with an offset in the index the compiler does not use vector instructions, which are 9 times as fast.
        p_part, q_part = p[begin : begin + _CHUNK], q[begin : begin + _CHUNK]
        part = zero
        for x in range(len(p_part)):
            part += max(weight * p_part[x] - q_part[x], zero)
        total += float(part)
    return total


@compiled
def _sparse_residual(p: Float32s, token_ids: Ints, q: Float32s, weight: float) -> float:
    """Returns r, where q is 0 for all other tokens: w less the sum over x of min(w p(x), q(x))."""
    left = weight
    for i in range(len(token_ids)):
        left -= min(weight * p[token_ids[i]], q[i])
    return max(left, 0.0)


@compiled
def _sparse_prob(token_ids: Ints, q: Float32s, token: int) -> float:
    total = 0.0
    for i in range(len(token_ids)):
        if token_ids[i] == token:
            total += q[i]
    return total


@compiled
def accept(
    probs: Float32s,
    p: Float32s,
    tokens: Ints,
    dense: Float32s,
    sparse_ids: Ints,
    sparse: Float32s,
    uniforms: Floats,
    lengths: Ints,
    first: Ints,
    draft_start: Ints,
    num_accepted: Ints,
    weight: Float32s,
) -> None:
    """Fills the number of accepted tokens per request, and w after them; all arrays are in C order.

    Args:
        probs: [num_rows, vocab_size], p.
        p: [num_draft_tokens], p of each draft token.
        tokens: [num_draft_tokens], draft tokens.
        dense: [num_draft_tokens, vocab_size], q; [0, 0] if it is sparse.
        sparse_ids: [num_draft_tokens, width], as in `SparseProbs`; [0, 0] if q is dense.
        sparse: [num_draft_tokens, width], probabilities of `sparse_ids`.
        uniforms: [num_draft_tokens], u of each draft token.
        lengths: [batch_size], draft tokens per request that may be accepted.
        first: [batch_size], each request's first row of `probs`.
        draft_start: [batch_size], index of each request's first draft token.
        num_accepted: [batch_size], filled.
        weight: [batch_size], filled.
    """
    weights = np.empty(len(tokens))
    for i in range(len(first)):
        start, length, w = draft_start[i], lengths[i], 1.0
        for draft in range(start, start + length):
            if len(dense):
                q = float(dense[draft, tokens[draft]])
            else:
                q = _sparse_prob(sparse_ids[draft], sparse[draft], tokens[draft])
            w = w * p[draft] / q if q > 0 else 0.0
            # Not min(), which would make 1 of NaN.
            if w > 1:
                w = 1.0
            weights[draft] = w
        num_accepted[i], weight[i] = 0, 1
        # From the longest block down: the first test that passes decides.
        for count in range(length, 0, -1):
            draft = start + count - 1
            w, u = weights[draft], uniforms[draft]
            if not u < w:
                continue
            if count < length and w < 1:
                row = probs[first[i] + count]
                if len(dense):
                    left = _residual(row, dense[draft + 1], np.float32(w))
                else:
                    left = _sparse_residual(row, sparse_ids[draft + 1], sparse[draft + 1], w)
                if not u < left / (left + 1 - w):
                    continue
            num_accepted[i], weight[i] = count, w
            break


def compile_now() -> None:
    """Compiles, or reads the machine code from the disk, so that no request waits for it."""
    probs, numbers = np.ones((2, 2), np.float32), np.zeros(1, np.int64)
    none, no_ids = np.empty((0, 0), np.float32), np.empty((0, 0), np.int64)
    lengths, first, draft_start, num_accepted = (numbers.copy() for _ in range(4))
    uniforms, weight = np.ones(1), probs[1]
    accept(probs, probs[0], numbers, probs, no_ids, none, uniforms, lengths, first, draft_start, num_accepted, weight)
