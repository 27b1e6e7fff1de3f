"""`vllm-spec theory`: what it prints and writes, and what it refuses."""

import json
import re
from pathlib import Path

import pytest

from tests.unit.cli.running import run


def rows(text: str) -> list[list[str]]:
    """The cells of every line that begins with a number by itself and is no text."""
    return [line.split() for line in text.splitlines() if re.match(r"\s*[\d.]+\s+[\d.]", line)]


def words(text: str) -> str:
    return " ".join(text.split())


def test_without_options_it_tells_tokens_speedup_operations_and_the_best_k() -> None:
    result = run("theory")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "alpha 0.8, c 0.05, c_hat 0.05" in result.stdout
    table = rows(result.stdout)
    assert table[0] == ["1", "1.80", "1.71x", "1.14x"]
    assert table[9] == ["10", "4.57", "3.05x", "2.52x"]
    assert len(table) == 10
    said = words(result.stdout)
    assert "best K: 8, 3.09x. At least 1.71x by corollary 3.9; an oracle that chose K anew in each step: 4.17x." in said
    assert "accepted over drafted tokens is less than that" in said


def test_verification_that_takes_time_is_counted() -> None:
    result = run("theory", "--alpha", "0.5", "--cost", "0.1", "--verify", "10,11,20")
    assert rows(result.stdout) == [
        ["1", "1.50", "1.36x", "1.40x", "1.25x"],
        ["2", "1.75", "1.46x", "1.83x", "0.80x"],
    ]
    assert "With what verifying costs, of all K that it is given for: 1, 1.25x." in words(result.stdout)
    assert 'but for "verify counted"' in words(result.stdout)


@pytest.mark.parametrize(
    ("alpha", "cost", "sentence"),
    [
        ("0.1", "0.2", "best K: 0; drafting does not pay unless alpha is above c. An oracle for K would gain 1.09x."),
        ("0.8", "0", "there is no best K: longer is faster, up to 5.00x."),
        ("1", "0", "there is no best K: longer is faster, without limit."),
    ],
)
def test_where_there_is_no_best_k_or_it_is_0_it_says_why(alpha: str, cost: str, sentence: str) -> None:
    assert sentence in words(run("theory", "--alpha", alpha, "--cost", cost).stdout)


def test_the_paper_stands_beside_what_is_computed() -> None:
    result = run("theory", "--paper")
    assert result.exit_code == 0
    table = rows(result.stdout)
    assert table[0] == ["0.6", "2", "1.53x", "1.5306x", "1.96x", "1.9600x"]
    assert table[5] == ["0.9", "10", "1.60x", "1.6031x", "6.86x", "6.8619x"]
    assert ["0.8", "14", "11", "8", "6", "4"] in table
    assert ["0.05", "0.965", "56.5%"] in table
    assert "EnDe T5-small 0 7 0.75 0.02 3.2x 3.16x 3.02x 3.30x 3.4x" in words(result.stdout)


def test_json_has_all_figures(tmp_path: Path) -> None:
    run("theory", "--alpha", "0.5", "--cost", "0.1,0", "--tokens", "1", "--json", tmp_path / "a.json")
    first, second = json.loads((tmp_path / "a.json").read_text())["cells"]
    assert first["rows"] == [
        {
            "draft_length": 1,
            "expected_tokens": pytest.approx(1.5),
            "speedup": pytest.approx(1.5 / 1.1),
            "operations": pytest.approx(1.4),
            "speedup_verified": None,
        }
    ]
    assert (first["acceptance_rate"], first["cost_ratio"], first["operations_ratio"]) == (0.5, 0.1, 0.1)
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
