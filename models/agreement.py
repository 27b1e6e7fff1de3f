"""Measures how often a draft agrees with its target, on text neither has seen."""

from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

WINDOW = 512


@dataclass(frozen=True)
class Agreement:
    """Means over held-out positions.

    Attributes:
        acceptance_rate: E[sum_x min(p(x), q(x))], the expected acceptance rate of one draft token (Leviathan et
            al., corollary 3.6).
        greedy: share of positions at which both models' most likely token is the same.
        target_loss: the target's cross entropy, nats per token.
        positions: how many were measured.
    """

    acceptance_rate: float
    greedy: float
    target_loss: float
    positions: int


@torch.inference_mode()
def measure_agreement(
    target: PreTrainedModel, draft: PreTrainedModel, tokens: torch.Tensor, temperature: float = 1.0
) -> Agreement:
    """Compares the two models' next-token distributions on every window of `tokens`.

    Args:
        target: the model that p comes from.
        draft: the model that q comes from.
        tokens: [num_tokens] int64, held-out text.
        temperature: applied to both.
    """
    overlap = same = loss = 0.0
    positions = 0
    for window in tokens[: len(tokens) // WINDOW * WINDOW].view(-1, 1, WINDOW):
        p_logits, q_logits = (m(input_ids=window).logits[0].float() for m in (target, draft))
        p, q = ((logits / temperature).softmax(-1) for logits in (p_logits, q_logits))
        overlap += torch.minimum(p, q).sum().item()
        same += (p_logits.argmax(-1) == q_logits.argmax(-1)).sum().item()
        loss += torch.nn.functional.cross_entropy(p_logits[:-1], window[0, 1:], reduction="sum").item()
        positions += WINDOW
    windows = positions // WINDOW
    return Agreement(overlap / positions, same / positions, loss / (positions - windows), positions)
