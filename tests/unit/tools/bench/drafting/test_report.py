"""Sentences and JSON of what drafting costs."""

import json

import pytest

from tests.unit.tools.bench.drafting.cases import PLUGIN, STOCK, results
from vllm_spec_plugin.tools.bench.arm_words import NONE
from vllm_spec_plugin.tools.bench.drafting import report


def test_sentence_says_the_limit_and_the_rest() -> None:
    (text,) = report.sentences(results())
    assert text.startswith("K = 4, batch 1, temperature 0: 3.00 tokens a step, so 3.00x if")
    assert "A step with 5 tokens takes 3.00 ms, one with 1 2.00 ms: 2.00x." in text
    assert "Drafting takes 4 x 0.40 ms: 1.30x. Measured: 1.17x. The rest, 10%:" in text
    assert "prompts take 15%" in text


@pytest.mark.parametrize(
    ("temperature", "on_cpu", "notes"),
    [
        (1.0, True, [report.GREEDY_NOTE, report.STOCK_NOTE]),
        (1.0, False, [report.GREEDY_NOTE]),
        (0.0, True, []),
    ],
)
def test_what_is_different_about_stock_sampling_is_noted(temperature: float, on_cpu: bool, notes: list[str]) -> None:
    assert list(report.notes(results(temperature), on_cpu))[1:] == notes


def test_json_holds_every_figure_and_where_it_comes_from() -> None:
    values = json.loads(json.dumps(report.to_json(results(), {"seed": 5})))
    assert values["provenance"] == {"seed": 5}
    cell = next(cell for cell in values["cells"] if cell["arm"] == PLUGIN)
    assert cell["medians"]["draft_step_prepared"]["median"] == pytest.approx(0.4e-3)
    assert cell["ratios"][STOCK]["draft_step"]["median"] == pytest.approx(0.5)
    assert cell["ratios"][NONE]["draft_step"] is None
    assert cell["limit"]["free"] == pytest.approx(3)
