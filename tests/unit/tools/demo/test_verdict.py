"""The demo's one sentence, its table and what counts as a problem."""

from vllm_spec_tools.demo.pairs import Answer, Pair
from vllm_spec_tools.demo.verdict import line, report_of

PROMPTS = ["def a():\n", "def b():\n"]
PLAIN = Answer("text", 40, 2.0)
PAIRS = [Pair(i % 2, PLAIN, Answer("text", 40, 2.0 / speedup)) for i, speedup in enumerate((2.0, 2.2, 2.4))]


def test_the_sentence_has_both_speeds_their_ratio_and_whether_outputs_are_identical() -> None:
    report = report_of(PAIRS, PROMPTS, {})
    assert report.conclusion == [
        "20.0 tokens/s without speculation, 44.0 with: 2.20 (2.00-2.40) times as fast; "
        "all 3 pairs of outputs identical."
    ]
    assert not report.problems
    assert [row[-1] for row in report.tables[0].rows] == ["yes", "yes"]


def test_a_different_output_is_a_problem_except_by_rounding() -> None:
    different = Pair(1, PLAIN, Answer("other", 40, 1.0))
    report = report_of([*PAIRS, different], PROMPTS, {})
    assert report.problems == ["1 of 4 pairs of outputs differ"]
    assert report.problems[0] in report.conclusion[0]
    assert [row[-1] for row in report.tables[0].rows] == ["yes", "NO"]
    assert "20 -> 40 tokens/s, 2.00 times, DIFFERENT: def b():" in line(2, 4, PROMPTS[1], different)
    report = report_of([*PAIRS, different], PROMPTS, {}, in_16_bits=True)
    assert not report.problems
    assert "1 of 4 pairs of outputs differ, as by rounding" in report.conclusion[0]
