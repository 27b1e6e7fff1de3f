"""A sweep as a page."""

from dataclasses import replace
from typing import Any

from tests.unit.tools.bench.load.cases import K_4, results
from vllm_spec_plugin.tools.bench.load.agreement import Agreement
from vllm_spec_plugin.tools.bench.load.report.markdown import to_markdown
from vllm_spec_plugin.tools.bench.load.sweep import SweepResults
from vllm_spec_plugin.tools.bench.load.workloads import EASY

ORIGIN: dict[str, Any] = {
    "arguments": ["bench", "--arm", "my file.yaml"],
    "seed": 5,
    "machine": {"cores": 2, "cpu": "a processor"},
    "versions": {"vllm": "0.32.0"},
    "date": "2026-01-02T03:04:05+00:00",
}


def page(found: SweepResults, on_cpu: bool = False, picture: str | None = None) -> str:
    return to_markdown(found, ORIGIN, on_cpu, picture)


def row(text: str, title: str, name: str) -> list[str]:
    """The cells of an arm in the table whose first column is called `title`."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {title}"))
    line = next(line for line in lines[start:] if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_the_page_has_the_command_and_a_table_per_figure() -> None:
    text = page(results(rounds=1, agreements={(K_4, EASY, 8): Agreement(9, 2, 0)}), picture="load.png")
    assert "```\nvllm-spec bench --arm 'my file.yaml'\n```" in text
    assert "time per output token](load.png)" in text
    assert "2 cores of a processor, vLLM 0.32.0, seed 5, rounds: 1, 2026-01-02." in text
    assert row(text, "tokens/s", "K = 4") == ["**50.0**", "80.0"]
    assert row(text, "tokens/s", "K = 1") == ["30.0", "**110**"]
    assert row(text, "over none", "optimal") == ["2.45", "1.09"]
    assert row(text, "over the best fixed K", "optimal") == ["0.98", "0.99"]
    assert row(text, "acceptance length", "none") == ["-", "-"]
    assert row(text, "TPOT, ms", "K = 4") == ["20.0", "12.5"]
    assert row(text, "TTFT, ms", "K = 4") == ["40.0", "25.0"]
    assert row(text, "greedy outputs", "K = 4") == ["-", "2 tied"]
    assert row(text, "Tokens/s from token ... on, 1 stream, phase 2", "optimal")[-1] == "100"


def test_what_was_not_measured_has_no_table() -> None:
    assert "greedy outputs |" not in page(results())
    assert "best fixed K" not in page(replace(results(), fixed=()))


def test_the_page_does_without_a_picture() -> None:
    assert "![" not in page(results())


def test_all_rows_of_a_table_are_as_long() -> None:
    for part in page(results()).split("\n\n"):
        if part.startswith("|"):
            assert len({line.count("|") for line in part.splitlines()}) == 1
