"""Objective of an EAGLE-3 head at each step of its chains: training-time test (arXiv 2503.01840, section 3.2)."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch.nn.functional import embedding
from torch.nn.utils import clip_grad_norm_

from vllm_spec_plugin.proposers.medusa.checkpoint import NUM_RANKS
from vllm_spec_tools.training.backbone import Backbone
from vllm_spec_tools.training.eagle3.reference import Eagle3Head
from vllm_spec_tools.training.measurement import Ranks, by_row, num_positions, rank_of
from vllm_spec_tools.training.objective import positions_of
from vllm_spec_tools.training.rows import RowBatch, TokenRow, batches_once

STEP_DECAY = 0.8  # weight of a step's loss relative to that of the step before
REJECTION_WEIGHT = 3.0  # of the rejection rate, relative to a cross entropy in nats
LARGEST_GRADIENT = 1.0
# Numbers of one tensor of logits, [positions, vocabulary].
_NUMBERS = {"cpu": 2**22, "cuda": 2**27}


class ChainLesson:
    """A batch as the target reads it, and the chains that start at its positions.

    Step s of the chain from position b is to predict token b + s + 2. It is given the text's tokens, not its own: where
    all its tokens before were right, they are the same. Its label is the target's distribution after position
    b + s + 1, of which it learns the part in its vocabulary, at the temperature of the text; in greedy text at 1, which
    has the same best token and teaches more.

    Attributes:
        positions: [positions] int64, first positions of the chains, indices into the batch's flattened tokens.
        logits: the target's, [rows * length, vocab_size].
        tokens: [rows * length] int64.
    """

    def __init__(
        self, backbone: Backbone, batch: RowBatch, head: Eagle3Head, target_ids: torch.Tensor, num_steps: int
    ) -> None:
        """Reads the batch with the target.

        Args:
            target_ids: [draft_vocab_size] int64, the target's tokens that the head predicts.
            num_steps: tokens per chain.
        """
        assert head.config.aux_layers is not None
        states, logits = backbone.read_layers(batch.tokens, head.config.aux_layers)
        self._head, self._ids, self._num_steps = head, target_ids, num_steps
        self._states, self._embeddings = states, embedding(batch.tokens.to(backbone.device), backbone.embedding).float()
        self.logits = logits.flatten(0, 1)
        self.tokens = batch.tokens.flatten().to(backbone.device)
        self.positions = positions_of(batch, num_steps).to(backbone.device)
        self._temperature = batch.temperature or 1.0
        self._draft_ids = torch.full((logits.shape[-1],), -1, device=backbone.device)
        self._draft_ids[target_ids] = torch.arange(len(target_ids), device=backbone.device)

    def outputs(self) -> Iterator[torch.Tensor]:
        """Yields per step the hidden states before `lm_head` of all chains, [positions, hidden_size]."""
        _, length, _ = self._states.shape
        # No chain starts at the last positions.
        chains = max(length - 1 - self._num_steps, 0)
        rows, columns = self.positions // length, self.positions % length
        features = self._head.combine(self._states[:, :chains])
        for output in self._head.unroll(self._embeddings[:, 1:], features, self._num_steps):
            yield output[rows, columns]

    def chunks(self) -> Iterator[slice]:
        """Yields parts of `positions` whose logits fit in memory."""
        most = max(16, _NUMBERS.get(self.logits.device.type, 2**22) // self.logits.shape[-1])
        for start in range(0, len(self.positions), most):
            yield slice(start, start + most)

    def losses(self, guesses: torch.Tensor, chunk: slice, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the sums of a step's cross entropies, in nats, and of its rejection rates.

        The rejection rate is the total variation distance, 1 - sum_x min(p(x), q(x)) where the head has all tokens.

        Args:
            guesses: [positions of `chunk`, draft_vocab_size], the head's logits.
        """
        p, log_q = self.probs(chunk, step), (guesses.float() / self._temperature).log_softmax(-1)
        return -(p * log_q).sum(), 0.5 * (p - log_q.exp()).abs().sum()

    def right(self, chunk: slice, step: int) -> torch.Tensor:
        """Returns the text's tokens of a step in the head's vocabulary, [positions] int64; -1 is outside of it."""
        return self._draft_ids[self.tokens[self.positions[chunk] + step + 2]]

    def probs(self, chunk: slice, step: int) -> torch.Tensor:
        """Returns the target's probabilities of the head's tokens at a step, [positions, draft_vocab_size]."""
        logits = self.logits[self.positions[chunk] + step + 1].float()
        return (logits / self._temperature).softmax(-1)[:, self._ids]

    def learn(self, rejection: float = 0.0) -> torch.Tensor:
        """Adds the gradients of the mean loss, with later steps weighted less, to the head's own.

        Logits and their gradients are kept for one chunk at a time.

        Args:
            rejection: share of the rejection rate in the loss; the rest is the cross entropy, which teaches faster.

        Returns:
            Mean cross entropy of each step, [num_steps], in nats.
        """
        count = max(1, len(self.positions))
        entropies = self._states.new_zeros(self._num_steps)
        outputs, gradients = [], []
        for step, output in enumerate(self.outputs()):
            leaf = output.detach().requires_grad_()
            for chunk in self.chunks():
                entropy, rejected = self.losses(self._head.lm_head(leaf[chunk]), chunk, step)
                loss = (1 - rejection) * entropy + rejection * REJECTION_WEIGHT * rejected
                (loss * STEP_DECAY**step / count).backward()
                entropies[step] += entropy.detach() / count
            if leaf.grad is not None:
                outputs.append(output)
                gradients.append(leaf.grad)
        if outputs:
            torch.autograd.backward(outputs, gradients)
        clip_grad_norm_(self._head.parameters(), LARGEST_GRADIENT)
        return entropies


def teacher(
    backbone: Backbone, head: Eagle3Head, target_ids: torch.Tensor, num_steps: int
) -> Callable[[RowBatch, float], torch.Tensor]:
    """Returns what `Training` learns a batch with: matrix products in bfloat16 where the device has them.

    The loss is the cross entropy in the first quarter of training, and the rejection rate itself in the last.
    """
    device = backbone.device.type
    is_fast = device != "cpu" or torch.cpu._is_avx512_bf16_supported()

    def learn(batch: RowBatch, done: float) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=is_fast):
            lesson = ChainLesson(backbone, batch, head, target_ids, num_steps)
            return lesson.learn(min(1.0, max(0.0, 2 * done - 0.5)))

    return learn


@torch.no_grad()
def rank_chains(
    backbone: Backbone,
    head: Eagle3Head,
    target_ids: torch.Tensor,
    rows: Sequence[TokenRow],
    batch_tokens: int,
    num_steps: int,
) -> tuple[Ranks, list[float]]:
    """Ranks of the text's tokens in chains from all positions of `rows`.

    Returns:
        Ranks, and of each step the mean over all positions of sum_x min(p(x), q(x)): the expected acceptance rate of a
        sampled draft token whose predecessors are the text's, at the temperature of the text.
    """
    ranks: list[torch.Tensor] = []
    losses, overlaps = torch.zeros(2, num_steps).unbind()
    for batch in batches_once(rows, batch_tokens):
        lesson = ChainLesson(backbone, batch, head, target_ids, num_steps)
        lines = torch.zeros(1 + num_steps, len(lesson.positions), dtype=torch.int64)
        for chunk in lesson.chunks():
            positions = lesson.positions[chunk]
            lines[0, chunk] = rank_of(lesson.logits[positions], lesson.tokens[positions + 1]).cpu()
        for step, output in enumerate(lesson.outputs()):
            for chunk in lesson.chunks():
                guesses, right = head.lm_head(output[chunk]), lesson.right(chunk, step)
                found = rank_of(guesses, right.clamp(min=0)).masked_fill(right < 0, NUM_RANKS)
                lines[1 + step, chunk] = found.cpu()
                losses[step] += lesson.losses(guesses, chunk, step)[0].cpu()
                q = (guesses / (batch.temperature or 1.0)).softmax(-1)
                overlaps[step] += torch.minimum(lesson.probs(chunk, step), q).sum().cpu()
        ranks += by_row(lines, lesson.positions, batch)
    count = num_positions(ranks)
    return Ranks(tuple(ranks), tuple((losses / count).tolist())), (overlaps / count).tolist()


def acceptance_by_position(ranks: Ranks) -> list[float]:
    """Returns of each step how often its best token is right where all before it were; 0 where they never were."""
    right = (ranks.together[1:] == 0).long().cumprod(0).sum(1).tolist()
    before = [ranks.together.shape[1], *right]
    return [hit / count if count else 0.0 for hit, count in zip(right, before, strict=False)]
