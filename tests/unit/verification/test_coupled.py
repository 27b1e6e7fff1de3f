"""Drafts are accepted while they are what the target samples; outputs do not depend on them."""

import functools

import numpy as np
import torch

from tests.pretended_gpu import waits
from tests.unit import p_values
from tests.unit.random_cases import random_cases
from vllm_spec_plugin.verification.coupled import accept_equal

WIDTH = 4


def expected(sampled: list[int], drafts: list[int]) -> list[int]:
    """The output of a request: tokens up to the first that is no draft, that one included."""
    output = []
    for token, draft in zip(sampled, [*drafts, None], strict=True):
        output.append(token)
        if token != draft:
            break
    return output


@random_cases(50, 500)
def test_each_request_gets_its_tokens_up_to_the_first_that_was_not_drafted(
    rng: np.random.Generator, device: torch.device
) -> None:
    requests = rng.integers(1, WIDTH + 1, rng.integers(1, 5))
    ends = requests.cumsum()
    sampled = rng.integers(0, 3, ends[-1])
    # The token that each row follows; what a grammar excludes is -1.
    follows = rng.integers(-1, 3, ends[-1])
    starts = torch.tensor([0, *ends], device=device)
    given = torch.tensor(np.stack([sampled, follows]), device=device)
    with waits() as found:
        outputs, counts = accept_equal(given[0], given[1], starts, WIDTH)
    assert not found
    assert outputs.shape == (len(requests), WIDTH)
    assert outputs.device == counts.device == device
    mine = zip(np.split(sampled, ends[:-1]), np.split(follows, ends[:-1]), strict=True)
    for output, count, (own, drafts) in zip(outputs.tolist(), counts.tolist(), mine, strict=True):
        assert output[:count] == expected(own.tolist(), drafts[1:].tolist())


def test_a_token_of_the_next_request_is_no_draft(device: torch.device) -> None:
    """The last row of "a" samples what the first row of "b" follows."""
    sampled, follows, starts = (torch.tensor(each, device=device) for each in ([7, 8], [1, 7], [0, 1, 2]))
    outputs, counts = accept_equal(sampled, follows, starts, WIDTH)
    assert counts.tolist() == [1, 1]
    assert outputs[:, 0].tolist() == [7, 8]


# Markov chains over three tokens: the next token's probabilities by the last token, of target and draft.
TARGET = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7], [0.35, 0.4, 0.25]])
DRAFT = torch.tensor([[0.3, 0.5, 0.2], [0.3, 0.3, 0.4], [0.25, 0.35, 0.4]])
NUM_OUTPUTS, NUM_DRAFTS, LENGTH, NUM_NAMES = 200_000, 2, 4, 20


@functools.cache
def outputs(seed: int, drafts_noise: int = 0, next_noise: int = 0) -> tuple[torch.Tensor, float]:
    """Writes many outputs from token 0 in steps of two drafts: [n, LENGTH] tokens, and how often draft 1 is accepted.

    Args:
        seed: of Gumbel noise, which depends on output, position and token.
        drafts_noise: added to the position of the noise that drafts are sampled with.
        next_noise: added to the position of the target's noise behind drafts.
    """
    generator = torch.Generator().manual_seed(seed)
    noise = -torch.empty(NUM_OUTPUTS, NUM_NAMES, 3).exponential_(generator=generator).log()
    every = torch.arange(NUM_OUTPUTS)
    tokens = torch.zeros(NUM_OUTPUTS, LENGTH + NUM_DRAFTS + 2, dtype=torch.long)
    count, first, steps = torch.ones_like(every), 0, 0
    starts = torch.arange(NUM_OUTPUTS + 1) * (NUM_DRAFTS + 1)
    while bool((busy := count <= LENGTH).any()):
        follows = [tokens[every, count - 1]]
        for i in range(NUM_DRAFTS):
            follows.append((DRAFT[follows[-1]].log() + noise[every, count - 1 + i + drafts_noise]).argmax(-1))
        rows = [
            (TARGET[token].log() + noise[every, count - 1 + i + (next_noise if i else 0)]).argmax(-1)
            for i, token in enumerate(follows)
        ]
        sampled, drafted = (torch.stack(each, 1).flatten() for each in (rows, follows))
        output, lengths = accept_equal(sampled, drafted, starts, NUM_DRAFTS + 1)
        for i in range(NUM_DRAFTS + 1):
            writes = busy & (i < lengths)
            tokens[every[writes], count[writes] + i] = output[writes, i]
        first, steps = first + int((lengths[busy] > 1).sum()), steps + int(busy.sum())
        count = torch.where(busy, count + lengths, count)
    return tokens[:, 1 : LENGTH + 1], first / steps


def p_value(written: torch.Tensor) -> float:
    """Returns that of the chi-square test of whole outputs: 81 texts against the target's probabilities."""
    texts = torch.cartesian_prod(*[torch.arange(3)] * LENGTH)
    expected = torch.ones(len(texts), dtype=torch.float64)
    for before, token in zip([torch.zeros(len(texts), dtype=torch.long), *texts.T], texts.T, strict=False):
        expected *= TARGET[before, token]
    observed = (written @ (3 ** torch.arange(LENGTH - 1, -1, -1))).bincount(minlength=len(texts)).numpy()
    return p_values.chi_square(observed, expected.numpy())


def test_whole_outputs_have_the_targets_distribution() -> None:
    """Seed 0, 200,000 outputs, false-alarm rate 1e-4; a deviation of w = 0.021 (Cohen's) is found in 99 of 100."""
    written, _ = outputs(0)
    assert p_value(written) > 1e-4


def test_outputs_do_not_depend_on_the_drafts() -> None:
    ours, other = outputs(0)[0], outputs(0, drafts_noise=1)[0]
    assert torch.equal(ours, other)


def overlap(p: torch.Tensor, q: torch.Tensor) -> float:
    """The probability that both sample the same token with the same noise (Daliri et al. 2025, section 3)."""
    ratios = torch.maximum(p[None] / p[:, None], q[None] / q[:, None])
    return float((1 / ratios.sum(1)).sum())


def test_drafts_with_the_targets_noise_are_accepted_as_often_as_coupling_allows() -> None:
    """Standard error of the share: 0.001. With noise of their own they are accepted less often."""
    shares = torch.tensor([overlap(p, q) for p, q in zip(TARGET, DRAFT, strict=True)])
    independent = (TARGET * DRAFT).sum(-1)
    lowest, highest = float(shares.min()), float(shares.max())
    assert lowest - 0.005 < outputs(0)[1] < highest + 0.005
    assert outputs(0, drafts_noise=NUM_NAMES // 2)[1] < float(independent.max()) + 0.005 < lowest
