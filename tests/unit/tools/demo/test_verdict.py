"""The demo's one sentence, its table and what counts as a problem."""

from dataclasses import replace

from tests.unit.tools.demo.cases import WORDS, answer, pairs
from vllm_spec_tools.demo.verdict import report_of, sentence


def test_the_sentence_has_speedup_with_spread_outputs_and_exactness() -> None:
    assert sentence(pairs(), "exact in all that was tested") == (
        "With speculation 2.20 times as fast (6 pairs: 2.00 to 2.40); all 6 pairs of outputs identical; "
        "exactness: exact in all that was tested."
    )
    assert sentence(pairs(), None).endswith("exactness: not tested.")
    # What is not known of other processes disturbs nothing.
    assert sentence(pairs((None,) * 3), None).startswith("With speculation 2.20 times as fast (3 pairs")


def test_disturbed_pairs_are_left_out_and_counted() -> None:
    told = sentence(pairs((0.0, 0.0, 0.0, 0.0, 0.9, 0.9), (2.0, 2.0, 2.0, 2.0, 9.0, 9.0)), None)
    assert told.startswith("With speculation 2.00 times as fast (4 pairs: 2.00 to 2.00; 2 disturbed by")


def test_a_disturbed_machine_is_said_and_its_figure_not_trusted() -> None:
    told = sentence(pairs((0.9, 1.1, 0.0, 0.7, 0.9, 1.3)), None)
    assert told.startswith(
        "Disturbed: other processes used 0.9 cores (median) during 5 of 6 pairs, so the speedup, 2.20"
    )
    assert "is not to be trusted" in told


def test_a_different_output_is_a_problem() -> None:
    found = pairs()
    found[1] = replace(found[1], drafted=answer(1.0, words=[*WORDS[:-1], "other\n"]))
    report = report_of(found, ["def a():\n", "def b():\n"], None, [], {})
    assert report.problems == ["1 of 6 pairs of outputs differ"]
    assert "1 DIFFER" in report.conclusion[0]
    report = report_of(found, ["def a():\n", "def b():\n"], None, [], {}, in_16_bits=True)
    assert not report.problems
    assert "1 of 6 outputs differ, as by rounding" in report.conclusion[0]
    assert [row[-1] for row in report.tables[0].rows] == ["yes", "NO"]
    assert report_of(pairs(), ["a", "b"], "not exact: greedy", ["Not exact: greedy"], {}).problems == [
        "Not exact: greedy"
    ]
