"""The matrix tells exact cells from wrong and untested ones, and reads the gate's reasons."""

import pytest

from tests.matrix.cells import EXACT, UNTESTED, WRONG, judge
from vllm_spec_tools.engines.jobs import JobOutput, JobResult

ACCEPTED, DRAFTED = "vllm:spec_decode_num_accepted_tokens", "vllm:spec_decode_num_draft_tokens"


def result(token_ids, gap=1.0, accepted=0, drafted=0):
    """One request's output; at each token the two most likely ones are it and 9, `gap` apart."""
    logprobs = [{token: -1.0, 9: -1.0 - gap} for token in token_ids]
    metrics = {ACCEPTED: float(accepted), DRAFTED: float(drafted)}
    outputs = [[JobOutput(list(token_ids), "", "length", None, logprobs)]]
    return JobResult(outputs=outputs, encoded=[], prompt_logprobs=[None], metrics=metrics, seconds=1.0)


def verdict(
    greedy=(1, 2, 3),
    seeded=(4, 5, 6),
    without=(4, 5, 6),
    gap=1.0,
    accepted=2,
    drafted=5,
    drafted_off=0,
    drafts_seeded=True,
    column="ngram",
):
    """Judges a cell whose greedy output without the plugin is 1, 2, 3."""
    results = {
        "greedy": result(greedy, accepted=accepted, drafted=drafted),
        "seeded": result(seeded, accepted=accepted * drafts_seeded, drafted=drafted * drafts_seeded),
        "seeded without drafts": result(without, drafted=drafted_off),
    }
    return judge(column, results, result((1, 2, 3), gap))[0]


def test_equal_outputs_with_accepted_and_rejected_drafts_are_exact():
    assert verdict() == EXACT


@pytest.mark.parametrize(
    "cell",
    [
        {"greedy": (1, 9, 3)},
        {"greedy": (1, 8, 3), "gap": 1e-6},
        {"greedy": (1, 2)},
        {"seeded": (4, 5, 7)},
        {"drafted_off": 1},
    ],
    ids=["other token", "not one of the two that tie", "shorter", "seeded", "drafts in spite of spec: off"],
)
def test_other_outputs_are_wrong(cell):
    assert verdict(**cell) == WRONG


def test_two_tokens_that_tie_are_the_same():
    assert verdict(greedy=(1, 9, 5), gap=1e-6) == EXACT


@pytest.mark.parametrize("drafts", [{"accepted": 0}, {"accepted": 5}], ids=["none accepted", "none rejected"])
def test_a_cell_without_accepted_or_rejected_drafts_is_untested(drafts):
    assert verdict(**drafts) == UNTESTED


def test_optimal_may_draft_in_one_of_the_runs_alone():
    assert verdict(column="cascade", drafts_seeded=False) == EXACT
    assert verdict(column="ngram", drafts_seeded=False) == UNTESTED
    assert verdict(column="cascade", accepted=0) == UNTESTED
