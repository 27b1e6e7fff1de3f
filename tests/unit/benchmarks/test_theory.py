"""`python -m benchmarks theory`: what it prints and writes, and what it refuses."""

import json
import re
from pathlib import Path

import pytest

from tests.unit.benchmarks.running import run


def rows(text: str) -> list[list[str]]:
    """The cells of every line that begins with a number by itself and is no text."""
    return [line.split() for line in text.splitlines() if re.match(r"\s*[\d.]+\s+[\d.]", line)]


def test_without_options_it_tells_tokens_speedup_operations_and_the_best_k() -> None:
    result = run("theory")
    assert (result.exit_code, result.stderr) == (0, "")
    table = rows(result.stdout)
    assert len(table) == 10
    assert table[9] == ["10", "4.57", "3.05x", "2.52x"]
    assert "best K: 8, 3.09x. At least 1.71x by corollary 3.9" in " ".join(result.stdout.split())


def test_verification_that_takes_time_is_counted() -> None:
    result = run("theory", "--alpha", "0.5", "--cost", "0.1", "--verify", "10,11,20")
    assert rows(result.stdout) == [
        ["1", "1.50", "1.36x", "1.40x", "1.25x"],
        ["2", "1.75", "1.46x", "1.83x", "0.80x"],
    ]
    assert "With what verifying costs, of all K that it is given for: 1, 1.25x." in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("alpha", "cost", "sentence"),
    [
        ("0.1", "0.2", "best K: 0; drafting does not pay unless alpha is above c."),
        ("0.8", "0", "there is no best K: longer is faster, up to 5.00x."),
        ("1", "0", "there is no best K: longer is faster, without limit."),
    ],
)
def test_where_there_is_no_best_k_or_it_is_0_it_says_why(alpha: str, cost: str, sentence: str) -> None:
    assert sentence in " ".join(run("theory", "--alpha", alpha, "--cost", cost).stdout.split())


def test_the_paper_stands_beside_what_is_computed() -> None:
    result = run("theory", "--paper")
    assert result.exit_code == 0
    assert rows(result.stdout)[0] == ["0.6", "2", "1.53x", "1.5306x", "1.96x", "1.9600x"]


def test_json_has_all_figures(tmp_path: Path) -> None:
    run("theory", "--alpha", "0.5", "--cost", "0.1,0", "--tokens", "1", "--json", tmp_path / "a.json")
    first, second = json.loads((tmp_path / "a.json").read_text())["cells"]
    [row] = first["rows"]
    assert (row["draft_length"], row["expected_tokens"], row["operations"]) == (1, 1.5, pytest.approx(1.4))
    assert first["best"] == {"draft_length": 2, "speedup": pytest.approx(1.75 / 1.2)}
    assert second["best"] == {"draft_length": None, "speedup": pytest.approx(2)}


LENGTHS = "whole numbers from 0 to 1000, such as 4 or 1,2,5 or 1..10"
STEPS = "at least two numbers from 0.000001 to 1000000, for 1, 2, ... tokens, such as 1,1.1,1.2"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--alpha", "1.5"], "--alpha: got 1.5; allowed: a number from 0 to 1"),
        (["--alpha", "nan"], "--alpha: got nan; allowed: a number from 0 to 1"),
        (["--alpha", ""], "--alpha: got nothing; allowed: a number from 0 to 1"),
        (["--alpha", "a\x1b[31m\nb"], "--alpha: got a\\x1b[31m\\nb; allowed: a number from 0 to 1"),
        (["--cost", "-0.1"], "--cost: got -0.1; allowed: a number from 0 to 1000"),
        (["--tokens", "5..1"], f"--tokens: got 5..1; allowed: {LENGTHS}"),
        (["--tokens", "1..1001"], f"--tokens: got 1..1001; allowed: {LENGTHS}"),
        (["--verify", "1"], f"--verify: got 1; allowed: {STEPS}"),
        (
            ["--verify", "1,2", "--tokens", "3"],
            "--verify: got 2 numbers; allowed: at least 4, for 1 to K + 1 tokens with K = 3",
        ),
        (
            ["--paper", "--alpha", "0.5", "--cost", "0"],
            "--alpha, --cost: not allowed with --paper, which uses the paper's values",
        ),
    ],
)
def test_what_does_not_go_is_one_line_and_nothing_is_printed(options: list[str], message: str) -> None:
    result = run("theory", *options)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == f"error: {message}\n"
