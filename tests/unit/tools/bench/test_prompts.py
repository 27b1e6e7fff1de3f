"""The texts that are completed."""

from pathlib import Path

import pytest

from vllm_spec_plugin.tools.bench.prompts import PROMPTS, PromptsError, prompts_of_round, read_prompts


def test_there_are_enough_different_prompts_for_the_default_batches() -> None:
    assert len(set(PROMPTS)) == len(PROMPTS) >= 8


def test_rounds_go_through_all_prompts() -> None:
    assert [prompts_of_round(("a", "b", "c"), 1, number) for number in range(4)] == [("a",), ("b",), ("c",), ("a",)]
    assert prompts_of_round(("a", "b", "c"), 2, 1) == ("c", "a")


def test_prompts_are_read_from_a_list(tmp_path: Path) -> None:
    path = tmp_path / "prompts.json"
    path.write_text('["one", "two"]')
    assert read_prompts(path) == ("one", "two")


@pytest.mark.parametrize("text", ["[]", '["a", ""]', '["a", 1]', '{"a": "b"}', '"a"', "not json", b"\xff"])
def test_anything_else_is_refused_in_one_message(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "prompts.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(PromptsError, match=r"--prompts .*prompts\.json: .*allowed: a JSON list of texts"):
        read_prompts(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PromptsError, match=r"none\.json: cannot be read: No such file"):
        read_prompts(tmp_path / "none.json")
