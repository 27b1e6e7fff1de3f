"""Trains draft heads on a batch of text, and measures how often they are right: the same for all kinds of heads."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch.nn.functional import one_hot
from torch.nn.utils import clip_grad_norm_

from vllm_spec_plugin.proposers.medusa.checkpoint import NUM_RANKS
from vllm_spec_tools.training.backbone import Backbone
from vllm_spec_tools.training.options import RunOptions
from vllm_spec_tools.training.rows import Kind, RowBatch, TokenRow, batches_once

# Numbers of one tensor of logits, [positions, vocab_size]: more would only fall out of the CPU's caches.
_NUMBERS = {"cpu": 2**22, "cuda": 2**27}
REJECTION_WEIGHT = 3.0  # of the rejection rate, relative to a cross entropy in nats

Heads = TypeVar("Heads", bound=torch.nn.Module)


@dataclass(frozen=True)
class Ranks:
    """Ranks of the right tokens, from 0; everything from NUM_RANKS on is NUM_RANKS.

    Attributes:
        rows: per row of text [1 + num_steps, positions] int64: first of the token after the position with the target
            itself, then of the draft tokens after that.
        loss: of each draft token, nats per position.
        overlap: of each draft token, the mean of sum_x min(p(x), q(x)): the expected acceptance rate of a sampled one
            whose predecessors are the text's, at the temperature of the text.
    """

    rows: tuple[torch.Tensor, ...]
    loss: tuple[float, ...]
    overlap: tuple[float, ...] = ()

    @property
    def together(self) -> torch.Tensor:
        """[1 + num_steps, positions] int64."""
        return torch.cat(self.rows, 1)


def rank_of(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Counts the entries of `logits`, [positions, vocab_size], above each row's token, at most NUM_RANKS."""
    return (logits > logits.gather(-1, tokens[:, None])).sum(-1).clamp_(max=NUM_RANKS)


def positions_of(batch: RowBatch, num_steps: int) -> torch.Tensor:
    """The positions to learn from: the token after them is the text's own, and so are all that are drafted.

    Returns:
        [positions] int64, indices into the batch's flattened tokens.
    """
    _, length = batch.tokens.shape
    bounds = enumerate(zip(batch.firsts, batch.lengths, strict=True))
    pieces = [torch.arange(row * length + a - 1, row * length + max(a, b - num_steps) - 1) for row, (a, b) in bounds]
    return torch.cat(pieces)


class Lesson:
    """A batch as the target reads it, and the draft tokens at its positions.

    Draft token s at position b is the text's token b + s + 2, and the ones before it are the text's, too. Its label is
    the target's distribution after position b + s + 1, at the temperature of the text: the expectation of the token's
    one-hot label, without its variance.

    Attributes:
        positions: [positions] int64, see `positions_of`.
        logits: the target's, [rows * length, vocab_size].
        tokens: [rows * length] int64.
        temperature: that of the text; 1 of greedy text and of other sources.
    """

    def __init__(
        self,
        backbone: Backbone,
        batch: RowBatch,
        num_steps: int,
        logits: torch.Tensor,
        target_ids: torch.Tensor | None = None,
        *,
        is_hard: bool = False,
        scales: bool = False,
    ) -> None:
        """Takes what the target reads in a batch.

        Args:
            logits: the target's, [rows, length, vocab_size].
            target_ids: [draft_vocab_size] int64, tokens that the heads predict; None is all.
            is_hard: whether labels are the text's tokens.
            scales: whether the heads' logits are for temperature 1 instead of that of the text.
        """
        self.num_steps, self._ids, self._is_hard = num_steps, target_ids, is_hard
        self.temperature = batch.temperature or 1.0
        self._scale = 1 / self.temperature if scales else 1.0
        self.positions = positions_of(batch, num_steps).to(backbone.device)
        self.logits = logits.flatten(0, 1)
        self.tokens = batch.tokens.flatten().to(backbone.device)
        self._places = torch.arange(logits.shape[-1], device=backbone.device)
        if target_ids is not None:
            self._places = torch.full_like(self._places, -1)
            self._places[target_ids] = torch.arange(len(target_ids), device=backbone.device)

    def chunks(self) -> Iterator[slice]:
        """Yields parts of `positions` whose logits fit in memory."""
        most = max(16, _NUMBERS.get(self.logits.device.type, 2**22) // self.logits.shape[-1])
        for start in range(0, len(self.positions), most):
            yield slice(start, start + most)

    def right(self, chunk: slice, step: int) -> torch.Tensor:
        """Returns the text's tokens of a step as the heads number them, [positions] int64; -1 is outside of them."""
        return self._places[self.tokens[self.positions[chunk] + step + 2]]

    def probs(self, chunk: slice, step: int) -> torch.Tensor:
        """Returns the target's probabilities of the heads' tokens at a step, [positions, draft_vocab_size]."""
        logits = self.logits[self.positions[chunk] + step + 1].float()
        probs = (logits / self.temperature).softmax(-1)
        return probs if self._ids is None else probs[:, self._ids]

    def losses(self, guesses: torch.Tensor, chunk: slice, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the sums of a step's cross entropies, in nats, and of its rejection rates.

        The rejection rate is the total variation distance, 1 - sum_x min(p(x), q(x)) where the heads have all tokens.

        Args:
            guesses: [positions of `chunk`, draft_vocab_size], the heads' logits.
        """
        log_q = (guesses.float() * self._scale).log_softmax(-1)
        p = one_hot(self.right(chunk, step), guesses.shape[-1]).float() if self._is_hard else self.probs(chunk, step)
        return -(p * log_q).sum(), 0.5 * (p - log_q.exp()).abs().sum()


class Objective(ABC, Generic[Heads]):
    """A kind of heads: how they are made, trained, measured and saved.

    Attributes:
        weights: name of the file of finished heads.
        unit: name of a draft token's part in reports.
        heads: the heads, once `start` or `load` made them.
    """

    weights: str
    unit: str
    step_decay = 1.0  # weight of a step's loss relative to that of the step before
    largest_gradient: float | None = None
    heads: Heads

    def __init__(self, options: RunOptions, backbone: Backbone) -> None:
        """Takes settled options."""
        self.options, self.backbone = options, backbone

    @abstractmethod
    def start(self, kinds: Sequence[Kind]) -> None:
        """Makes the heads that training starts from."""

    @abstractmethod
    def lesson(self, batch: RowBatch) -> tuple[Lesson, Iterator[torch.Tensor]]:
        """Reads a batch; the iterator yields per step the states before the last layer, [positions, hidden_size]."""

    @abstractmethod
    def guess(self, states: torch.Tensor, step: int) -> torch.Tensor:
        """The last layer: logits of the draft tokens of a step, [positions, draft_vocab_size]."""

    @abstractmethod
    def save(self, out: Path, more: dict[str, Any]) -> None:
        """Writes the weights, and config.json with `more`."""

    @abstractmethod
    def load(self, out: Path) -> None:
        """Reads heads that were saved, with the rounding of the file."""

    @abstractmethod
    def figures(self, ranks: dict[str, Ranks], kinds: Sequence[Kind], held_out: dict[str, Any]) -> dict[str, Any]:
        """Figures for config.json, from the ranks and the figures of each kind's held-out rows, by its name."""

    def rejection(self, done: float) -> float:
        """Share of the rejection rate in the loss, given the share of steps done; the rest is the cross entropy."""
        return 0.0

    def learn(self, batch: RowBatch, done: float) -> torch.Tensor:
        """Adds the gradients of a batch's mean loss to those of the heads.

        Logits and their gradients are kept for one chunk at a time.

        Args:
            done: share of all steps that are done.

        Returns:
            Mean cross entropy of each step, [num_steps], in nats.
        """
        lesson, steps = self.lesson(batch)
        count, rejection = max(1, len(lesson.positions)), self.rejection(done)
        entropies = torch.zeros(lesson.num_steps, device=lesson.logits.device)
        outputs, gradients = [], []
        for step, output in enumerate(steps):
            leaf = output.detach().requires_grad_()
            for chunk in lesson.chunks():
                entropy, rejected = lesson.losses(self.guess(leaf[chunk], step), chunk, step)
                loss = (1 - rejection) * entropy + rejection * REJECTION_WEIGHT * rejected
                (loss * self.step_decay**step / count).backward()
                entropies[step] += entropy.detach() / count
            if leaf.grad is not None:
                outputs.append(output)
                gradients.append(leaf.grad)
        if outputs:
            torch.autograd.backward(outputs, gradients)
        if self.largest_gradient is not None:
            clip_grad_norm_(self.heads.parameters(), self.largest_gradient)
        return entropies

    @torch.no_grad()
    def rank(self, rows: Sequence[TokenRow]) -> Ranks:
        """Ranks the text's tokens at all positions of `rows` that have all the tokens to be drafted."""
        ranks: list[torch.Tensor] = []
        losses, overlaps = torch.zeros(2, self.options.tokens_ahead).unbind()
        for batch in batches_once(rows, self.options.batch_tokens):
            lesson, steps = self.lesson(batch)
            lines = torch.zeros(1 + lesson.num_steps, len(lesson.positions), dtype=torch.int64)
            for chunk in lesson.chunks():
                positions = lesson.positions[chunk]
                lines[0, chunk] = rank_of(lesson.logits[positions], lesson.tokens[positions + 1]).cpu()
            for step, output in enumerate(steps):
                for chunk in lesson.chunks():
                    guesses, right = self.guess(output[chunk], step), lesson.right(chunk, step)
                    found = rank_of(guesses, right.clamp(min=0)).masked_fill(right < 0, NUM_RANKS)
                    lines[1 + step, chunk] = found.cpu()
                    losses[step] += lesson.losses(guesses, chunk, step)[0].cpu()
                    q = (guesses / lesson.temperature).softmax(-1)
                    overlaps[step] += torch.minimum(lesson.probs(chunk, step), q).sum().cpu()
            of_rows = torch.bincount(lesson.positions.cpu() // batch.tokens.shape[1], minlength=len(batch.lengths))
            ranks += [row for row in lines.split(of_rows.tolist(), 1) if row.shape[1]]
        count = max(1, sum(row.shape[1] for row in ranks))
        return Ranks(tuple(ranks), tuple((losses / count).tolist()), tuple((overlaps / count).tolist()))
