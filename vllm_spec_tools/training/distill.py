"""The target's own text: what heads will have to guess when it serves."""

import hashlib
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from vllm_spec_tools.training.backbone import Backbone
from vllm_spec_tools.training.data import Document
from vllm_spec_tools.training.rows import Row

MIN_PROMPT = 16
_ROWS = {"cpu": 64, "cuda": 256}
_POOL = 6  # batches


def cut_prompts(
    documents: Sequence[Document], backbone: Backbone, max_tokens: int, generator: random.Random
) -> Iterator[list[int]]:
    """Prompts without end: each document's own or, where it has none, a piece of it from a random position.

    Lengths of pieces are drawn evenly on a logarithmic scale. A prompt of a document's own that is too long is left
    out.
    """
    while True:
        order = list(documents)
        generator.shuffle(order)
        found = False
        for document in order:
            text = document.text if document.prompt is None else document.prompt
            tokens = backbone.encode(text, special=not document.is_rendered)
            if document.prompt is None:
                # Long texts give more prompts, so that a few tokens of short ones are not asked again and again.
                for _ in range(1 + len(tokens) // 4096):
                    length = round(max_tokens * min(1, MIN_PROMPT / max_tokens) ** generator.random())
                    start = generator.randrange(max(1, len(tokens) - length))
                    yield tokens[start : start + length]
                found = True
            elif 0 < len(tokens) <= max_tokens:
                yield tokens
                found = True
        if not found:
            return


class OwnText:
    """Continuations by the target, kept in a file as they are made: an interrupted run goes on after the last batch.

    Attributes:
        path: a line of JSON per batch.
        seconds_before: that earlier runs took for what was found in the file.
    """

    def __init__(self, backbone: Backbone, path: Path, max_length: int, seed: int) -> None:
        """Takes a file for the batches. Of `max_length` tokens a prompt has up to half and a continuation a quarter."""
        self._backbone = backbone
        self._path = path
        self._max_prompt = max(1, max_length // 2)
        self._max_new = max(1, max_length // 4)
        self._seed = seed
        self.seconds_before = 0.0

    def rows(
        self,
        documents: Sequence[Document],
        num_tokens: int,
        temperature: float,
        part: str,
        on_tokens: Callable[[int], None],
    ) -> list[Row]:
        """At least `num_tokens` tokens written by the target, fewer only if there is nothing to go on from.

        Args:
            num_tokens: how many; prompts do not count.
            temperature: 0 is greedy.
            on_tokens: called with the number of tokens after every batch.
        """
        key = f"{part} {temperature:g}"
        found = [entry for entry in self._entries() if entry["key"] == key]
        self.seconds_before += sum(entry["seconds"] for entry in found)
        kept = [entry["rows"] for entry in found]
        number = int.from_bytes(hashlib.sha256(f"{self._seed} {key}".encode()).digest()[:4], "big")
        generator = random.Random(number)
        prompts = cut_prompts(documents, self._backbone, self._max_prompt, generator)
        batches = _of_like_lengths(prompts, _ROWS[self._backbone.device.type], generator)
        rows: list[Row] = []
        made = 0
        for i, batch in enumerate(batches):
            if made >= num_tokens:
                break
            if i == len(kept):
                begin = time.monotonic()
                kept.append(self._continue(batch, temperature, number + i))
                entry = {"key": key, "seconds": round(time.monotonic() - begin, 3), "rows": kept[i]}
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(entry) + "\n")
            for first, tokens in kept[i]:
                rows.append(Row(torch.tensor(tokens), first, temperature))
                made += len(tokens) - first
            on_tokens(min(made, num_tokens))
        return rows

    def _entries(self) -> Iterator[dict[str, Any]]:
        if not self._path.is_file():
            return
        text = self._path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        if whole != text:  # killed while it wrote
            self._path.write_text(whole, encoding="utf-8")
        yield from map(json.loads, whole.splitlines())

    @torch.no_grad()
    def _continue(self, prompts: list[list[int]], temperature: float, seed: int) -> list[tuple[int, list[int]]]:
        """Continues prompts: per prompt its length, and its tokens with those that follow."""
        from transformers import GenerationConfig

        backbone = self._backbone
        longest = max(map(len, prompts))
        ends = _ids(backbone.model.generation_config.eos_token_id) or _ids(backbone.tokenizer.eos_token_id)
        pad = ends[0] if ends else 0
        tokens = torch.tensor([[pad] * (longest - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {}
        config = GenerationConfig(
            max_new_tokens=self._max_new,
            eos_token_id=ends or None,
            pad_token_id=pad,
            **({"do_sample": False} | sampling),
        )
        torch.manual_seed(seed)
        made = backbone.model.generate(
            input_ids=tokens.to(backbone.device), attention_mask=mask.to(backbone.device), generation_config=config
        )
        rows = []
        for prompt, row in zip(prompts, made[:, longest:].tolist(), strict=True):
            end = next((i + 1 for i, token in enumerate(row) if token in ends), len(row))
            rows.append((len(prompt), prompt + row[:end]))
        return rows


def _of_like_lengths(
    prompts: Iterator[list[int]], num_rows: int, generator: random.Random
) -> Iterator[list[list[int]]]:
    """Batches of prompts; those of one batch are near each other in length, as padding costs as much as tokens."""
    while pool := list(islice(prompts, num_rows * _POOL)):
        pool.sort(key=len)
        batches = [pool[start : start + num_rows] for start in range(0, len(pool), num_rows)]
        generator.shuffle(batches)
        yield from batches


def _ids(value: Any) -> list[int]:
    if value is None:
        return []
    return [value] if isinstance(value, int) else list(value)
