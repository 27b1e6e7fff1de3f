"""How often drafts that are drawn from the heads would be accepted: the heads' distributions against the target's."""

import heapq
from collections.abc import Sequence

import torch

from vllm_spec_plugin.proposers.draw import draw_siblings
from vllm_spec_plugin.proposers.medusa.heads import MedusaHeads
from vllm_spec_tools.training.backbone import Backbone
from vllm_spec_tools.training.objective import Lesson
from vllm_spec_tools.training.rows import Row, batches_once

NUM_DRAWN = 6
"""Maximum number of siblings sampled per position in a measurement."""
_POSITIONS = 64  # at once: NUM_DRAWN distributions of each


def accepted_shares(p: torch.Tensor, tokens: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
    """[n, k]: probability that each of k siblings is the one accepted, as verification tries them in turn.

    Args:
        p: [n, vocab_size], the target's distributions.
        tokens: [n, k] int64, the siblings.
        probs: [n, k, vocab_size], what each was drawn from given those before it.
    """
    left, mass, tried = p.clone(), torch.ones_like(p[:, :1]), torch.ones_like(p[:, :1])
    shares = []
    for rank in range(tokens.shape[1]):
        token, q = tokens[:, rank, None], probs[:, rank]
        kept = (left.gather(1, token) / (mass * q.gather(1, token)).clamp_min(1e-30)).clamp_max(1)
        shares.append(tried * kept)
        tried = tried * (1 - kept)
        left = (left - mass * q).clamp_min_(0)
        mass = left.sum(1, keepdim=True)
    return torch.cat(shares, 1)


@torch.no_grad()
def drawn_shares(
    backbone: Backbone, heads: MedusaHeads, rows: Sequence[Row], batch_tokens: int, seed: int
) -> torch.Tensor:
    """[num_heads, positions, NUM_DRAWN]: see `accepted_shares`; drafts are drawn at the text's temperature, or at 1."""
    generator = torch.Generator().manual_seed(seed)
    shares = []
    for batch in batches_once(rows, batch_tokens):
        lesson = Lesson(backbone, batch, heads.num_heads, soft=True)
        for positions in lesson.positions.split(_POSITIONS):
            guesses = heads(lesson.states[positions]) / (batch.temperature or 1.0)
            of_heads = []
            for head, guess in enumerate(guesses):
                uniforms = torch.rand(len(positions), NUM_DRAWN, generator=generator, dtype=torch.float64)
                tokens, probs = draw_siblings(guess, uniforms.to(guess.device))
                of_heads.append(accepted_shares(lesson.labels[positions + head + 1], tokens, probs).cpu())
            shares.append(torch.stack(of_heads))
    return torch.cat(shares, 1) if shares else torch.zeros(heads.num_heads, 0, NUM_DRAWN)


def drawn_paths(shares: torch.Tensor, max_paths: int) -> list[tuple[list[int], float]]:
    """Probabilities that paths of drawn siblings are accepted, for the likeliest paths.

    Heads draw independently of each other given the position, so at each position a path's probability is the
    product of its positions' shares; the mean over positions keeps that easy positions are easy for all heads.

    Args:
        shares: [num_heads, positions, siblings].
        max_paths: maximum number of paths.

    Returns:
        Likeliest first, every prefix of a path before it.
    """
    found: list[tuple[list[int], float]] = []
    waiting: list[tuple[float, tuple[int, ...]]] = []
    along: dict[tuple[int, ...], torch.Tensor] = {(): torch.ones(shares.shape[1])}

    def offer(path: tuple[int, ...]) -> None:
        if len(path) < len(shares) and shares.shape[1]:
            products = along[path][:, None] * shares[len(path)]
            for rank, probability in enumerate(products.mean(0).tolist()):
                if probability > 0:
                    along[*path, rank] = products[:, rank]
                    heapq.heappush(waiting, (-probability, (*path, rank)))

    offer(())
    while waiting and len(found) < max_paths:
        negative, path = heapq.heappop(waiting)
        found.append((list(path), -negative))
        offer(path)
        del along[path]
    return found
