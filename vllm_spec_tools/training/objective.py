"""Objective of each head at each position, and the loss."""

from collections.abc import Callable, Iterator
from functools import cached_property

import torch

from vllm_spec_plugin.proposers.medusa.heads import MedusaHeads
from vllm_spec_tools.training.backbone import Backbone
from vllm_spec_tools.training.rows import RowBatch

# Numbers of one tensor of logits, [num_heads, positions, vocab_size]: more would only fall out of the CPU's caches.
_NUMBERS = {"cpu": 2**22, "cuda": 2**28}


def positions_of(batch: RowBatch, num_heads: int) -> torch.Tensor:
    """The positions to learn from: the token after them is the text's own, and so are all that the heads guess.

    Returns:
        [positions] int64, indices into the batch's flattened tokens.
    """
    _, length = batch.tokens.shape
    pieces = [
        torch.arange(row * length + first - 1, row * length + end - 1 - num_heads)
        for row, (first, end) in enumerate(zip(batch.firsts, batch.lengths, strict=True))
        if first - 1 < end - 1 - num_heads
    ]
    return torch.cat(pieces) if pieces else torch.zeros(0, dtype=torch.int64)


class Lesson:
    """A batch as the target reads it: states, and what every head should make of them.

    Head k at position t learns the token t+1+k. Its label is the target's distribution of that token, which the same
    pass gives at position t+k: the expectation of the token's own one-hot label, without its variance. With hard
    labels it is the token, and so it is in greedy text, where the target's distribution has nothing else.

    Attributes:
        positions: [positions] int64, see `positions_of`.
        states: [rows * length, hidden_size] float32.
        logits: the target's own, [rows * length, vocab_size].
        tokens: [rows * length] int64.
    """

    def __init__(self, backbone: Backbone, batch: RowBatch, num_heads: int, *, soft: bool) -> None:
        states, logits = backbone.read(batch.tokens)
        self.num_heads = num_heads
        self.positions = positions_of(batch, num_heads).to(backbone.device)
        self.states = states.flatten(0, 1).float()
        self.logits = logits.flatten(0, 1)
        self.tokens = batch.tokens.flatten().to(backbone.device)
        self._soft = soft and batch.temperature != 0
        self._temperature = batch.temperature or 1.0

    @cached_property
    def labels(self) -> torch.Tensor:
        """The target's distributions at the temperature of the text, [rows * length, vocab_size] float32."""
        return (self.logits.float() / self._temperature).softmax(-1)

    def chunks(self) -> Iterator[torch.Tensor]:
        """The positions in pieces whose logits fit in memory."""
        numbers = self.num_heads * self.logits.shape[-1]
        yield from self.positions.split(max(16, _NUMBERS.get(self.logits.device.type, 2**22) // numbers))

    def errors(self, guesses: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cross entropies of the heads' distributions, and their gradients.

        The gradient of a cross entropy is the distribution less its label, so nothing is kept for a backward pass.

        Args:
            guesses: the heads' logits, [num_heads, positions, vocab_size] float32.

        Returns:
            The sum of each head's cross entropies, [num_heads], in nats, and the gradients of that by the logits.
        """
        gradients = guesses.detach().log_softmax(-1)
        losses = gradients.new_zeros(self.num_heads)
        for head in range(self.num_heads):
            log_q = gradients[head]
            if self._soft:
                labels = self.labels[positions + head + 1]
                losses[head] = -torch.dot(labels.view(-1), log_q.reshape(-1))
                log_q.exp_().sub_(labels)
            else:
                right = self.tokens[positions + head + 2][:, None]
                losses[head] = -log_q.gather(-1, right).sum()
                log_q.exp_().scatter_add_(-1, right, -torch.ones_like(right, dtype=log_q.dtype))
        return losses, gradients

    def learn(self, heads: MedusaHeads) -> torch.Tensor:
        """Adds the gradients of the mean loss to the heads' own.

        Returns:
            Mean cross entropy of each head, [num_heads], in nats.
        """
        total = torch.zeros(self.num_heads, device=self.states.device)
        for positions in self.chunks():
            guesses = heads(self.states[positions])
            losses, gradients = self.errors(guesses, positions)
            guesses.backward(gradients.div_(len(self.positions)))
            total += losses
        return total / max(1, len(self.positions))


def teacher(backbone: Backbone, heads: MedusaHeads, *, soft: bool) -> Callable[[RowBatch, float], torch.Tensor]:
    """Returns what `Training` learns a batch with."""
    return lambda batch, done: Lesson(backbone, batch, heads.num_heads, soft=soft).learn(heads)
