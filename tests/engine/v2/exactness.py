"""Tests every token of sampled outputs against the target's exact distribution after its own context.

Given its context a token is one draw from known probabilities, whatever the tokens before it were: what was seen minus
what was expected is a martingale. Sums over all tokens of the outputs, by classes of tokens, are tested against their
covariance. Unlike tests of repeated prompts (`samples.py`) it uses every position of long outputs.
"""

from collections.abc import Sequence
from typing import Any

import torch

from tests.engine.chi_square import Test
from tests.engine.exact import Reference, Tokens
from vllm_spec_tools.certify.target_probabilities import probabilities

# First ranks of the classes, by the target's probability. The token that `guess` holds likeliest, which a draft mostly
# has, is a class by itself: a sampler that accepts too much or too little is seen there.
_RANKS = torch.tensor([0, 1, 2, 4, 8, 32])
_LEAST_EXPECTED = 10.0
_ROUNDING = 1e-3


def context_test(
    reference: Reference,
    prompts: Sequence[Tokens],
    outputs: Sequence[Sequence[int]],
    params: dict[str, Any],
    guess: Reference | None = None,
) -> Test:
    """The chi-square test of the outputs, sampled with `params`, one per prompt.

    Args:
        reference: the target.
        prompts: of the outputs.
        outputs: token ids.
        params: as for `SamplingParams`.
        guess: a model with its vocabulary; None is the target.

    Raises:
        AssertionError: a token has probability 0, rounding aside.
    """
    num_classes = len(_RANKS) + 1
    deviation, expected = torch.zeros(2, num_classes, dtype=torch.float64)
    covariance = torch.zeros(num_classes, num_classes, dtype=torch.float64)
    for prompt, output in zip(prompts, outputs, strict=True):
        rows = slice(len(prompt) - 1, -1)
        logits, tokens = reference.logits([*prompt, *output])[rows], torch.tensor(output)[:, None]
        contexts = [tuple(output[:i]) for i in range(len(output))]
        possible = probabilities(logits, prompt, contexts, params, _ROUNDING).gather(1, tokens) > 0
        assert possible.all(), f"{params}: impossible tokens at {(~possible[:, 0]).nonzero().tolist()} of {output}"
        probs = probabilities(logits, prompt, contexts, params)
        guessed = (guess.logits([*prompt, *output])[rows] if guess else logits).argmax(-1, keepdim=True)
        classes = torch.bucketize(probs.argsort(-1, descending=True).argsort(-1), _RANKS, right=True)
        classes.scatter_(1, guessed, 0)
        by_class = torch.zeros(len(output), num_classes, dtype=torch.float64).scatter_add_(1, classes, probs)
        seen = torch.nn.functional.one_hot(classes.gather(1, tokens)[:, 0], num_classes)
        deviation += (seen - by_class).sum(0)
        expected += by_class.sum(0)
        covariance += by_class.sum(0).diag() - by_class.T @ by_class
    kept = expected >= _LEAST_EXPECTED
    deviation, covariance = deviation[kept], covariance[kept][:, kept]
    inverse = torch.linalg.pinv(covariance, rtol=1e-9, hermitian=True)
    return Test(float(deviation @ inverse @ deviation), int(torch.linalg.matrix_rank(covariance, rtol=1e-9)))
