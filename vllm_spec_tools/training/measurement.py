"""Measures how often heads are right, on text that they have not seen."""

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from vllm_spec_plugin.proposers.draft_tokens import draw_siblings
from vllm_spec_plugin.proposers.medusa.checkpoint import NUM_RANKS
from vllm_spec_plugin.proposers.medusa.heads import MedusaHeads
from vllm_spec_tools.training.backbone import Backbone
from vllm_spec_tools.training.objective import Lesson
from vllm_spec_tools.training.rows import RowBatch, TokenRow, batches_once

MAX_PATHS = 256


@dataclass(frozen=True)
class Ranks:
    """Ranks of the right tokens, from 0; everything from NUM_RANKS on is NUM_RANKS.

    Attributes:
        rows: per row of text [1 + num_heads, positions] int64: first of the token after the position with the target
            itself, then of the tokens after that with the heads.
        loss: of each head, nats per position.
    """

    rows: tuple[torch.Tensor, ...]
    loss: tuple[float, ...]

    @property
    def together(self) -> torch.Tensor:
        """[1 + num_heads, positions] int64."""
        return torch.cat(self.rows, 1)


def rank_of(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Counts the entries above each row's token, at most NUM_RANKS.

    Args:
        logits: [positions, vocab_size].
        tokens: [positions] int64.
    """
    of_tokens = logits.gather(-1, tokens[:, None])
    return (logits > of_tokens).sum(-1).clamp_(max=NUM_RANKS)


@torch.no_grad()
def rank_rows(
    backbone: Backbone, heads: MedusaHeads, rows: Sequence[TokenRow], batch_tokens: int, *, soft: bool
) -> Ranks:
    """Ranks at all positions of `rows` that have all the tokens to be guessed."""
    ranks: list[torch.Tensor] = []
    losses = torch.zeros(heads.num_heads)
    for batch in batches_once(rows, batch_tokens):
        lesson = Lesson(backbone, batch, heads.num_heads, soft=soft)
        pieces = [torch.zeros(1 + heads.num_heads, 0, dtype=torch.int64)]
        for positions in lesson.chunks():
            guesses = heads(lesson.states[positions])
            piece = [rank_of(lesson.logits[positions], lesson.tokens[positions + 1])]
            piece += [rank_of(guess, lesson.tokens[positions + 2 + head]) for head, guess in enumerate(guesses)]
            pieces.append(torch.stack(piece).cpu())
            losses += lesson.errors(guesses, positions)[0].cpu()
        ranks += by_row(torch.cat(pieces, 1), lesson.positions, batch)
    return Ranks(tuple(ranks), tuple((losses / num_positions(ranks)).tolist()))


def by_row(lines: torch.Tensor, positions: torch.Tensor, batch: RowBatch) -> list[torch.Tensor]:
    """Splits ranks, [1 + num_heads, positions], by the row of the batch that each position is in."""
    counts = torch.bincount(positions.cpu() // batch.tokens.shape[1], minlength=len(batch.lengths)).tolist()
    return [row for row in lines.split(counts, 1) if row.shape[1]]


def num_positions(ranks: Sequence[torch.Tensor]) -> int:
    """Number of ranked positions, at least 1."""
    return max(1, sum(row.shape[1] for row in ranks))


def accuracy(ranks: torch.Tensor) -> list[list[float]]:
    """Probability of each rank below NUM_RANKS, for each line of `ranks`.

    Args:
        ranks: [lines, positions].
    """
    positions = max(1, ranks.shape[1])
    return [(torch.bincount(line, minlength=NUM_RANKS)[:NUM_RANKS] / positions).tolist() for line in ranks]


def likeliest_paths(ranks: torch.Tensor) -> list[tuple[list[int], float]]:
    """Probabilities that the first heads' right tokens have exactly these ranks, for the likeliest paths.

    Args:
        ranks: [num_heads, positions], heads only.

    Returns:
        Likeliest first, every prefix of a path before it.
    """
    counts: Counter[tuple[int, ...]] = Counter()
    for position in zip(*ranks.tolist(), strict=True):
        for depth in range(1, 1 + len(position)):
            if position[depth - 1] >= NUM_RANKS:
                break
            counts[position[:depth]] += 1
    order = sorted(counts.items(), key=lambda item: (-item[1], len(item[0]), item[0]))
    return [(list(path), count / ranks.shape[1]) for path, count in order[:MAX_PATHS]]


def tokens_per_step(rows: Sequence[torch.Tensor]) -> float:
    """Tokens that a target gains per pass when each head drafts its best token, on the text that it wrote.

    A step at position t gains the token t+1 and as many of those after as the first heads get right; the next one is
    at the last token gained but one. That is what serving does: at temperature 0 exactly, at others because a certain
    draft is accepted if and only if the token drawn is equal.
    """
    steps = tokens = 0
    for row in rows:
        right = (row[1:] == 0).long().cumprod(0).sum(0).tolist()
        position = 0
        while position < len(right):
            steps += 1
            tokens += 1 + right[position]
            position += 1 + right[position]
    return tokens / max(1, steps)


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
    backbone: Backbone, heads: MedusaHeads, rows: Sequence[TokenRow], batch_tokens: int, seed: int
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
