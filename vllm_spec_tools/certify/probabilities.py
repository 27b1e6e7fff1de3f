"""Probabilities of the next token from the target's logits: vLLM's sampling pipeline in plain torch, float64."""

from collections.abc import Sequence
from typing import Any

import torch

from vllm_spec_tools.certify.jobs import Tokens

# Parameters that drop tokens.
TRUNCATIONS = ("min_p", "top_k", "top_p")


def probabilities(
    logits: torch.Tensor, prompt: Tokens, outputs: Sequence[Tokens], params: dict[str, Any], slack: float = 0.0
) -> torch.Tensor:
    """[len(outputs), vocab_size] float64: distributions of the next token, in the order of vLLM's sampler.

    Args:
        logits: [len(outputs), vocab_size], the target's after prompt and output.
        params: as for `SamplingParams`.
        slack: see `truncated`.
    """
    return truncated(adjusted(logits, prompt, outputs, params), params, slack)


def adjusted(logits: torch.Tensor, prompt: Tokens, outputs: Sequence[Tokens], params: dict[str, Any]) -> torch.Tensor:
    """[len(outputs), vocab_size] float64: logits after logit bias, penalties and temperature; see `probabilities`."""
    logits = logits.double().clone()
    for token, bias in params.get("logit_bias", {}).items():
        logits[:, token] += bias
    repetition = params.get("repetition_penalty", 1.0)
    frequency, presence = params.get("frequency_penalty", 0.0), params.get("presence_penalty", 0.0)
    if (repetition, frequency, presence) != (1.0, 0.0, 0.0):
        counts = torch.zeros_like(logits)
        for row, output in enumerate(outputs):
            for token in output:
                counts[row, token] += 1
        seen = counts > 0
        seen[:, list(prompt)] = True
        penalised = torch.where(logits > 0, logits / repetition, logits * repetition)
        logits = torch.where(seen, penalised, logits)
        logits -= frequency * counts
        logits -= presence * (counts > 0)
    temperature: float = params.get("temperature", 1.0)
    return logits / temperature


def truncated(logits: torch.Tensor, params: dict[str, Any], slack: float = 0.0) -> torch.Tensor:
    """[num_rows, vocab_size] float64: distributions after min-p, top-k and top-p.

    Args:
        logits: [num_rows, vocab_size] float64, from `adjusted`.
        params: as for `SamplingParams`.
        slack: keeps what is that close to being kept; a negative one drops what is that close to being dropped by min-p
            and top-p (the last of the top k always is).
    """
    if min_p := params.get("min_p"):
        probs = logits.softmax(-1)
        logits = logits.masked_fill(probs < min_p * probs.amax(-1, keepdim=True) * (1 - slack), -torch.inf)
    if top_k := params.get("top_k"):
        logits = logits.masked_fill(logits < logits.topk(top_k).values[:, -1:] - max(slack, 0.0), -torch.inf)
    if top_p := params.get("top_p"):
        probs, order = logits.softmax(-1).sort(descending=True)
        likelier = probs.cumsum(-1) - probs
        excluded = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, order, likelier >= top_p + slack)
        logits = logits.masked_fill(excluded, -torch.inf)
    return logits.softmax(-1)
