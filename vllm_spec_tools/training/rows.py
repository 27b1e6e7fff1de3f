"""Texts as rows of tokens, and rows as batches."""

import hashlib
import itertools
import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.progress import Tasks
from vllm_spec_tools.training.backbone import Backbone
from vllm_spec_tools.training.data import Data, Document
from vllm_spec_tools.training.options import RunOptions


@dataclass(frozen=True)
class TokenRow:
    """Tokens that the target reads at once.

    Attributes:
        tokens: ids, [length] int64.
        first: the first token that the target itself is taken to have written, from 1: the ones before are its
            prompt, and nothing is learned or measured there.
        temperature: at which the target wrote them; None is text of another source.
    """

    tokens: torch.Tensor
    first: int = 1
    temperature: float | None = None


def cut(tokens: Sequence[int], max_length: int, min_length: int) -> Iterator[TokenRow]:
    """A text as rows of up to `max_length` tokens; a rest of less than `min_length` is left out."""
    for start in range(0, len(tokens), max_length):
        piece = tokens[start : start + max_length]
        if len(piece) >= min_length:
            yield TokenRow(torch.tensor(piece, dtype=torch.int64))


@dataclass(frozen=True)
class RowBatch:
    """Rows side by side.

    Attributes:
        tokens: [rows, length] int64, padded on the right with zeros: no token sees what comes after it.
        lengths: of each row, without the padding.
        firsts: `TokenRow.first` of each.
    """

    tokens: torch.Tensor
    lengths: list[int]
    firsts: list[int]
    temperature: float | None


def side_by_side(rows: Sequence[TokenRow]) -> RowBatch:
    """Makes a batch of rows of one temperature."""
    tokens = torch.nn.utils.rnn.pad_sequence([row.tokens for row in rows], batch_first=True)
    return RowBatch(tokens, [len(row.tokens) for row in rows], [row.first for row in rows], rows[0].temperature)


def batches(rows: Iterable[TokenRow], batch_tokens: int) -> Iterator[RowBatch]:
    """Yields rows of one temperature in their order, as many side by side as `batch_tokens` hold; at least one."""
    batch, longest = list[TokenRow](), 0
    for row in rows:
        longest = max(longest, len(row.tokens))
        if batch and (len(batch) + 1) * longest > batch_tokens:
            yield side_by_side(batch)
            batch, longest = [], len(row.tokens)
        batch.append(row)
    if batch:
        yield side_by_side(batch)


def batches_once(rows: Sequence[TokenRow], batch_tokens: int) -> Iterator[RowBatch]:
    """Yields each row once, those of one temperature together, longest first."""
    for temperature in dict.fromkeys(row.temperature for row in rows):
        alike = [row for row in rows if row.temperature == temperature]
        yield from batches(sorted(alike, key=lambda row: -len(row.tokens)), batch_tokens)


def batches_forever(kinds: Sequence[Sequence[TokenRow]], batch_tokens: int, seed: int) -> Iterator[RowBatch]:
    """Batches of each kind of rows in turn, every kind shuffled again and again; the same for the same seed.

    Args:
        kinds: rows of one temperature each, none of them empty.
    """
    shuffled = (_shuffled(rows, random.Random(seed * len(kinds) + number)) for number, rows in enumerate(kinds))
    streams = [batches(rows, batch_tokens) for rows in shuffled]
    while True:
        yield from map(next, streams)


_NEARBY = 256


def _shuffled(rows: Sequence[TokenRow], generator: random.Random) -> Iterator[TokenRow]:
    """Rows without end; those near each other are of like lengths, so that little of a batch is padding."""
    while True:
        order = list(rows)
        generator.shuffle(order)
        for start in range(0, len(order), _NEARBY):
            yield from sorted(order[start : start + _NEARBY], key=lambda row: len(row.tokens))


MIN_PROMPT = 16
_BATCH_ROWS = {"cpu": 128, "cuda": 1024}  # written at once, and kept at once

Write = Callable[[list[list[int]], int, float, int], list[list[int]]]
"""Continues prompts: see `TargetEngine.write`."""


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
    """Continuations by the target, kept in a file as they are made: an interrupted run goes on after the last batch."""

    def __init__(self, backbone: Backbone, path: Path, max_length: int, seed: int, write: Write) -> None:
        """Takes a file for the batches. Of `max_length` tokens a prompt has up to half and a continuation a quarter."""
        self._backbone, self._path, self._seed, self._write = backbone, path, seed, write
        self._max_prompt, self._max_new = max(1, max_length // 2), max(1, max_length // 4)

    def rows(
        self,
        documents: Sequence[Document],
        num_tokens: int,
        temperature: float,
        part: str,
        on_tokens: Callable[[int], None],
    ) -> list[TokenRow]:
        """Generates at least `num_tokens` tokens with the target; fewer only if no text is left to continue.

        Args:
            num_tokens: how many; prompts do not count.
            temperature: 0 is greedy.
            part: name of the documents.
            on_tokens: called with the number of tokens after every batch.
        """
        key = f"{part} {temperature:g}"
        kept = [entry["rows"] for entry in self._entries() if entry["key"] == key]
        number = int.from_bytes(hashlib.sha256(f"{self._seed} {key}".encode()).digest()[:4], "big")
        generator = random.Random(number)
        prompts = cut_prompts(documents, self._backbone, self._max_prompt, generator)
        rows: list[TokenRow] = []
        made = 0
        for i in itertools.count():
            batch = list(itertools.islice(prompts, _BATCH_ROWS[self._backbone.device.type]))
            if made >= num_tokens or not batch:
                break
            if i == len(kept):
                written = self._write(batch, self._max_new, temperature, number + i)
                kept.append([(len(prompt), prompt + new) for prompt, new in zip(batch, written, strict=True)])
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"key": key, "rows": kept[i]}) + "\n")
            for first, tokens in kept[i]:
                rows.append(TokenRow(torch.tensor(tokens), first, temperature))
                made += len(tokens) - first
            on_tokens(min(made, num_tokens))
        return rows

    def _entries(self) -> list[dict[str, Any]]:
        if not self._path.is_file():
            return []
        text = self._path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        if whole != text:  # killed while it wrote
            self._path.write_text(whole, encoding="utf-8")
        return [json.loads(line) for line in whole.splitlines()]


DATA = "data"
HELD_OUT_TOKENS = 65_536  # most that are measured of one kind
_OWN_HELD_OUT_SHARE = 0.05  # of the tokens made to learn from, as many more are made to measure on


@dataclass(frozen=True)
class Kind:
    """One kind.

    Attributes:
        held_out: rows of documents that no row of any kind's `train` is from, or goes on from.
    """

    name: str
    train: tuple[TokenRow, ...]
    held_out: tuple[TokenRow, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens to learn from."""
        return sum(len(row.tokens) - row.first for row in self.train)


def data_kinds(backbone: Backbone, data: Data, options: RunOptions, tasks: Tasks) -> list[Kind]:
    """The documents as a kind of rows, no more of them than the steps can use; none if all are prompts to answer.

    Raises:
        UserError: they are too short to learn from.
    """
    wanted = options.steps * options.batch_tokens
    documents, others = (
        [document for document in part if not document.is_unanswered] for part in (data.train, data.held_out)
    )
    if not documents and not others and options.self_distill:
        return []
    with tasks.task("reading tokens", min(wanted, sum(len(document.text) for document in documents))) as advance:
        train = tuple(_rows(backbone, documents, options, wanted, advance))
    held_out = tuple(_rows(backbone, others, options, HELD_OUT_TOKENS, lambda done: None))
    if not (train or options.steps == 0) or not held_out:
        what = "to train on" if held_out else "to hold out"
        raise UserError(
            f"--data {' '.join(options.data)}: no text of {options.tokens_ahead + 2} tokens {what}; allowed: longer "
            "texts or fewer tokens ahead"
        )
    return [Kind(DATA, train, held_out)]


def own_kinds(own: OwnText, data: Data, options: RunOptions, tasks: Tasks) -> list[Kind]:
    """The target's own continuations, a kind per temperature.

    Raises:
        UserError: they end too soon to learn from.
    """
    kinds = []
    temperatures = list(dict.fromkeys(options.temperatures)) if options.self_distill else []
    to_train = options.self_distill // max(1, len(temperatures)) if options.steps else 0
    to_measure = min(HELD_OUT_TOKENS, max(1, round(_OWN_HELD_OUT_SHARE * options.self_distill)))
    for temperature in temperatures:
        name, rows = f"own text at temperature {temperature:g}", []
        for documents, count, part in ((data.train, to_train, "train"), (data.held_out, to_measure, "held out")):
            with tasks.task(f"{name}, {part}", count) as advance:
                made = own.rows(documents, count, temperature, part, advance)
            rows.append(tuple(row for row in made if len(row.tokens) - row.first > options.tokens_ahead))
        if not all(rows[0 if options.steps else 1 :]):
            raise UserError(
                f"--self-distill: the model's own texts end within {options.tokens_ahead} tokens of these data; "
                "allowed: data whose beginnings it goes on from"
            )
        kinds.append(Kind(name, *rows))
    return kinds


def _rows(
    backbone: Backbone,
    documents: Sequence[Document],
    options: RunOptions,
    num_tokens: int,
    advance: Callable[[int], None],
) -> Iterator[TokenRow]:
    end, done = backbone.tokenizer.eos_token_id, 0
    for document in documents:
        if done >= num_tokens:
            return
        tokens = backbone.encode(document.text, special=not document.is_rendered)
        if end is not None and not document.is_rendered:
            tokens.append(end)
        done += len(tokens)
        advance(done)
        yield from cut(tokens, options.max_length, options.tokens_ahead + 2)
