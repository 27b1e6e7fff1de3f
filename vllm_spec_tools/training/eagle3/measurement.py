"""How often each step of an EAGLE-3 head's chains is right, on text that it has not seen."""

from collections.abc import Sequence

import torch

from vllm_spec_plugin.proposers.medusa.checkpoint import NUM_RANKS
from vllm_spec_tools.training.backbone import Backbone
from vllm_spec_tools.training.eagle3.objective import ChainLesson
from vllm_spec_tools.training.eagle3.reference import Eagle3Head
from vllm_spec_tools.training.measurement import Ranks, rank_of
from vllm_spec_tools.training.rows import Row, batches_once


@torch.no_grad()
def rank_chains(
    backbone: Backbone,
    head: Eagle3Head,
    target_ids: torch.Tensor,
    rows: Sequence[Row],
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
        row_of = lesson.positions.cpu() // batch.tokens.shape[1]
        counts = torch.bincount(row_of, minlength=len(batch.lengths)).tolist()
        ranks += [row for row in lines.split(counts, 1) if row.shape[1]]
    count = max(1, sum(row.shape[1] for row in ranks))
    return Ranks(tuple(ranks), tuple((losses / count).tolist())), (overlaps / count).tolist()


def acceptance_by_position(ranks: Ranks) -> list[float]:
    """Returns of each step how often its best token is right where all before it were; 0 where they never were."""
    right = (ranks.together[1:] == 0).long().cumprod(0).sum(1).tolist()
    before = [ranks.together.shape[1], *right]
    return [hit / count if count else 0.0 for hit, count in zip(right, before, strict=False)]
