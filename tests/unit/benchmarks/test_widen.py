"""`python -m benchmarks widen`: its options, what it prints, and where its errors go."""

import json
from pathlib import Path

import pytest
import typer

from tests.unit.benchmarks.running import run
from vllm_spec_tools.engines.engine_options import parse_count


@pytest.mark.parametrize(
    ("text", "count"),
    [("7", 7), ("12k", 12_000), ("200M", 200_000_000), ("1.1b", 1_100_000_000), ("0.000001B", 1000), ("3K", 3000)],
)
def test_counts_may_end_in_k_m_or_b(text: str, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["", "M", "-1", "1e6", "2G", "1,000", "1.M", "٣", "1M ", "9" * 40])
def test_other_counts_are_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="allowed: a number"):
        parse_count(text)


def test_the_bundled_target_is_widened_and_the_figures_printed(tmp_path: Path) -> None:
    result = run("widen", tmp_path / "out", "--parameters", "4M")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert result.stdout.endswith("out: 4,065,536 parameters\n")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["intermediate_size"] == 896


def test_an_error_is_one_line_and_leaves_no_folder(tmp_path: Path) -> None:
    result = run("widen", tmp_path / "out", "--parameters", "3M")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith("got 3,000,000 parameters to reach; allowed: from 3,672,320, what it has\n")
    assert not (tmp_path / "out").exists()
