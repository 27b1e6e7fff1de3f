"""Logits of the bundled models, from a transformers forward pass."""

import copy
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from vllm_spec_plugin.models import model_path
from vllm_spec_tools.engines.jobs import Tokens

__all__ = ["Reference", "Tokens"]

_BATCH = 256


class Reference:
    """A model in transformers, float32: a bundled one by name, the target unless told otherwise, or a folder's."""

    def __init__(self, model: str | Path = "target") -> None:
        from transformers import AutoModelForCausalLM

        self._folder = model if isinstance(model, Path) else model_path(model)
        # Models with attention sinks have no other.
        kind = {"attn_implementation": "eager"} if isinstance(model, Path) else {}
        self.model = AutoModelForCausalLM.from_pretrained(self._folder, dtype=torch.float32, **kind).eval()
        self._after: dict[tuple[Tokens, Tokens], torch.Tensor] = {}

    @functools.cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self._folder)

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
