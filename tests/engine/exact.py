"""Exact probabilities of the target's tokens: a transformers forward pass and vLLM's sampling pipeline."""

import copy
from collections.abc import Sequence
from typing import Any

import torch

from vllm_spec_plugin.demo import model_path

Tokens = tuple[int, ...]
_BATCH = 256


class Reference:
    """A bundled model in transformers, float32; the target unless told otherwise."""

    def __init__(self, model: str = "target") -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(model_path(model))
        self.model = AutoModelForCausalLM.from_pretrained(model_path(model), dtype=torch.float32).eval()
        self._after: dict[tuple[Tokens, Tokens], torch.Tensor] = {}

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, nothing added."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    @torch.inference_mode()
    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        """[len(tokens), vocab_size]: row i follows tokens[: i + 1]."""
        logits: torch.Tensor = self.model(torch.tensor([list(tokens)])).logits[0].float()
        return logits

    @torch.inference_mode()
    def last_hidden(self, tokens: Sequence[int]) -> torch.Tensor:
        """[hidden_size]: the state after the last of `tokens` that the model's projection is applied to."""
        hidden: torch.Tensor = self.model.model(torch.tensor([list(tokens)])).last_hidden_state[0, -1].float()
        return hidden

    @torch.inference_mode()
    def logits_after(self, prompt: Tokens, continuations: Sequence[Tokens]) -> torch.Tensor:
        """[len(continuations), vocab_size]: after the prompt and each of them; computed once in a session."""
        wanted = {c for c in continuations if (prompt, c) not in self._after}
        by_length: dict[int, list[Tokens]] = {}
        for continuation in sorted(wanted):
            by_length.setdefault(len(continuation), []).append(continuation)
        if by_length:
            begin = self.model(torch.tensor([list(prompt)]), use_cache=True)
            self._after[prompt, ()] = begin.logits[0, -1].float()
            for length, group in by_length.items():
                for i in range(0, len(group) if length else 0, _BATCH):
                    part = group[i : i + _BATCH]
                    cache = copy.deepcopy(begin.past_key_values)
                    cache.batch_repeat_interleave(len(part))
                    last = self.model(torch.tensor(part), past_key_values=cache).logits[:, -1].float()
                    self._after.update(((prompt, c), row.clone()) for c, row in zip(part, last, strict=True))
        return torch.stack([self._after[prompt, c] for c in continuations])


def probabilities(
    logits: torch.Tensor, prompt: Tokens, outputs: Sequence[Tokens], params: dict[str, Any], slack: float = 0.0
) -> torch.Tensor:
    """[len(outputs), vocab_size] float64: distributions of the next token, in the order of vLLM's sampler.

    Args:
        logits: [len(outputs), vocab_size], the target's after prompt and output.
        prompt: token ids.
        outputs: token ids so far.
        params: as for `SamplingParams`.
        slack: makes min-p, top-k and top-p keep what is that close to being kept.
    """
    logits = logits.double().clone()
    for token, bias in params.get("logit_bias", {}).items():
        logits[:, token] += bias
    counts = torch.zeros_like(logits)
    for row, output in enumerate(outputs):
        for token in output:
            counts[row, token] += 1
    seen = counts > 0
    seen[:, list(prompt)] = True
    repetition = params.get("repetition_penalty", 1.0)
    penalised = torch.where(logits > 0, logits / repetition, logits * repetition)
    logits = torch.where(seen, penalised, logits)
    logits -= params.get("frequency_penalty", 0.0) * counts
    logits -= params.get("presence_penalty", 0.0) * (counts > 0)
    logits /= params.get("temperature", 1.0)
    if min_p := params.get("min_p"):
        probs = logits.softmax(-1)
        logits[probs < min_p * probs.amax(-1, keepdim=True) * (1 - slack)] = -torch.inf
    if top_k := params.get("top_k"):
        logits[logits < logits.topk(top_k).values[:, -1:] - slack] = -torch.inf
    if top_p := params.get("top_p"):
        probs, order = logits.softmax(-1).sort(descending=True)
        likelier = probs.cumsum(-1) - probs
        excluded = torch.zeros_like(seen).scatter_(1, order, likelier >= top_p + slack)
        logits[excluded] = -torch.inf
    return logits.softmax(-1)
