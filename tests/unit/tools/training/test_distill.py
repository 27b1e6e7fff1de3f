"""The target's own text."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.unit.tools.training.tiny import LETTERS, alphabet_backbone, random_backbone, writing
from vllm_spec_tools.training import rows as own_text
from vllm_spec_tools.training.backbone import Backbone
from vllm_spec_tools.training.data import Document
from vllm_spec_tools.training.rows import OwnText, TokenRow, Write

DOCUMENTS = [Document(LETTERS * 3), Document((LETTERS * 3)[5:])]


def make(
    backbone: Backbone,
    path: Path,
    tokens: int = 200,
    temperature: float = 0.0,
    part: str = "train",
    write: Write | None = None,
) -> list[TokenRow]:
    own = OwnText(backbone, path, 64, 3, write or writing(backbone))
    return own.rows(DOCUMENTS, tokens, temperature, part, lambda done: None)


def content(rows: list[TokenRow]) -> list[tuple[int, float | None, list[int]]]:
    return [(row.first, row.temperature, row.tokens.tolist()) for row in rows]


def test_greedy_text_goes_on_as_the_target_does_whatever_the_prompts_length(tmp_path: Path) -> None:
    rows = make(alphabet_backbone(), tmp_path / "own.jsonl")
    assert sum(len(row.tokens) - row.first for row in rows) >= 200
    assert len({row.first for row in rows}) > 1
    for row in rows:
        tokens = row.tokens.tolist()
        assert len(tokens) == row.first + 16
        assert all(after == 2 + (before - 1) % 26 for before, after in pairwise(tokens))


def test_a_text_ends_with_its_end_token(tmp_path: Path) -> None:
    rows = make(random_backbone(), tmp_path / "own.jsonl", tokens=1000, temperature=1.0)
    ended = [row for row in rows if 0 in row.tokens[row.first :].tolist()]
    assert ended
    assert all(row.tokens[row.first : -1].ne(0).all() for row in rows)


def test_what_was_made_before_an_interrupt_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(own_text._BATCH_ROWS, "cpu", 8)
    backbone = random_backbone()
    whole = content(make(backbone, tmp_path / "whole.jsonl", tokens=500, temperature=1.0))
    path = tmp_path / "own.jsonl"
    make(backbone, path, tokens=150, temperature=1.0)
    num_kept = len(path.read_text().splitlines())
    with path.open("a") as file:
        file.write('{"key": "train 1", "ro')  # killed while it wrote
    calls: list[int] = []
    own = writing(backbone)

    def write(prompts: list[list[int]], max_tokens: int, temperature: float, seed: int) -> list[list[int]]:
        calls.append(len(prompts))
        return own(prompts, max_tokens, temperature, seed)

    assert content(make(backbone, path, tokens=500, temperature=1.0, write=write)) == whole
    assert len(calls) == len((tmp_path / "whole.jsonl").read_text().splitlines()) - num_kept > 0
    calls.clear()
    assert content(make(backbone, path, tokens=500, temperature=1.0, write=write)) == whole
    assert not calls
