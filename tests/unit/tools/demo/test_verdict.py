"""The demo's one sentence, its table and what counts as a problem."""

from dataclasses import replace

import pytest

from tests.unit.tools.demo.cases import pairs
from vllm_spec_tools.demo.answers import Answer
from vllm_spec_tools.demo.verdict import line, report_of, sentence


@pytest.mark.parametrize(
    ("others", "speedups", "told"),
    [
        ((0.0,) * 6, (2.0, 2.2, 2.4), "With speculation 2.20 times as fast (6 pairs: 2.00 to 2.40); all 6 pairs of"),
        # What is not known of other processes disturbs nothing.
        ((None,) * 3, (2.0, 2.2, 2.4), "With speculation 2.20 times as fast (3 pairs: 2.00 to 2.40);"),
        (
            (0.0, 0.0, 0.0, 0.0, 0.9, 0.9),
            (2.0, 2.0, 2.0, 2.0, 9.0, 9.0),
            "With speculation 2.00 times as fast (4 pairs: 2.00 to 2.00; 2 disturbed by",
        ),
        (
            (0.9, 1.1, 0.0, 0.7, 0.9, 1.3),
            (2.0, 2.2, 2.4),
            "Disturbed: other processes used 0.9 cores (median) during 5 of 6 pairs, so the speedup, 2.20",
        ),
    ],
)
def test_the_sentence_has_the_speedup_of_undisturbed_pairs(
    others: tuple[float | None, ...], speedups: tuple[float, ...], told: str
) -> None:
    found = pairs(others, speedups)
    assert sentence(found, None).startswith(told)
    assert sentence(found, None).endswith("exactness: not tested.")
    assert sentence(found, "exact").endswith(" pairs of outputs identical; exactness: exact.")


def test_a_different_output_is_a_problem() -> None:
    found = pairs()
    found[1] = replace(found[1], drafted=Answer("other", 40, 1.0))
    report = report_of(found, ["def a():\n", "def b():\n"], None, [], {})
    assert report.problems == ["1 of 6 pairs of outputs differ"]
    assert "1 DIFFER" in report.conclusion[0]
    assert [row[-1] for row in report.tables[0].rows] == ["yes", "NO"]
    assert "20 -> 40 tokens/s, 2.00 times, DIFFERENT: def b():" in line(2, 6, "def b():\n", found[1])
    report = report_of(found, ["def a():\n", "def b():\n"], None, [], {}, in_16_bits=True)
    assert not report.problems
    assert "1 of 6 outputs differ, as by rounding" in report.conclusion[0]
    wrong = report_of(pairs(), ["a", "b"], "not exact: greedy", ["Not exact: greedy"], {})
    assert wrong.problems == ["Not exact: greedy"]
