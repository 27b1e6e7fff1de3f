"""Compares seeded outputs with those without speculation: with coupled verification they are the same tokens.

Speculation computes the same logits with other rounding. By the first difference of two outputs every token has the
same context, so both the logits and the tokens can be compared there. Rounding that changes the logits x by e changes
a token that is sampled with the same Gumbel noise with a probability of at most 2 TV, TV being the total variation of
softmax(x / T) and softmax((x + e) / T), which is at most E|e_i - e_top| / T to first order, i being the sampled token
and top the likeliest (Daliri et al. 2025 for the coupling). The mean of that difference is measured here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from vllm_spec_tools.certify.greedy import first_difference
from vllm_spec_tools.certify.target_probabilities import Floats
from vllm_spec_tools.engines.jobs import JobOutput

# Twice the bound at the lowest temperature tested, 0.5: rounding may also move a token over top-k, top-p or min-p.
_CHANGES_PER_ROUNDING = 8.0
# Of tokens, those whose logits may differ by more than the tolerance.
_SHARE_BEYOND = 0.01
_POWER = 0.95


@dataclass(frozen=True)
class Comparison:
    """Outputs compared up to the first difference of each.

    Attributes:
        num_tokens: tokens compared, those that differ included.
        differing: indices of outputs that differ, with the position.
        gaps: [num_logits], differences of the two engines in how far the sampled token's logit is below the highest.
    """

    num_tokens: int
    differing: list[tuple[int, int]]
    gaps: Floats

    @property
    def expected_share(self) -> float:
        """Share of tokens that rounding may change."""
        return min(1.0, _CHANGES_PER_ROUNDING * float(self.gaps.mean())) if len(self.gaps) else 0.0

    @property
    def p_value(self) -> float:
        """The probability of as many differences by rounding."""
        return float(binom.sf(len(self.differing) - 1, self.num_tokens, self.expected_share))

    def share_beyond(self, tolerance: float) -> float:
        """Returns the share of tokens whose logits differ by more than a tolerance."""
        return float((self.gaps > tolerance).mean()) if len(self.gaps) else 0.0

    def is_wrong(self, threshold: float, tolerance: float) -> bool:
        """Whether outputs differ in more than rounding: p-values below a threshold, or too many other logits."""
        return self.p_value < threshold or self.share_beyond(tolerance) > _SHARE_BEYOND

    def smallest_fault(self, threshold: float) -> float | None:
        """Returns the share of wrong tokens that would have been found with a probability of 95%; None if none is."""
        n, by_rounding = self.num_tokens, self.expected_share
        alarm = binom.isf(threshold, n, by_rounding) + 1
        for share in np.geomspace(1e-5, 1.0, 200):
            if binom.sf(alarm - 1, n, by_rounding + (1 - by_rounding) * share) >= _POWER:
                return float(share)
        return None


def compare(outputs: Sequence[JobOutput], expected: Sequence[JobOutput]) -> Comparison:
    """Compares outputs that have the logits or logprobs of the likeliest and of the sampled token."""
    num_tokens, differing, gaps = 0, list[tuple[int, int]](), list[float]()
    for index, (ours, theirs) in enumerate(zip(outputs, expected, strict=True)):
        different = first_difference(ours.token_ids, theirs.token_ids)
        same = len(theirs.token_ids) if different is None else different
        num_tokens += min(same + 1, len(theirs.token_ids))
        differing += [] if different is None else [(index, same)]
        gaps += [abs(_gap(ours, i, token) - _gap(theirs, i, token)) for i, token in enumerate(theirs.token_ids[:same])]
    return Comparison(num_tokens, differing, np.array(gaps))


def _gap(output: JobOutput, position: int, token: int) -> float:
    assert output.logprobs is not None
    row = output.logprobs[position]
    return max(row.values()) - row[token]
