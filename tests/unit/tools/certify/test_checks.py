"""Outcomes of checks."""

from types import SimpleNamespace
from typing import cast

import pytest

from tests.unit.tools.certify.markov import PROMPT, MarkovLaw, output
from vllm_spec_tools.certify.baseline import Baseline
from vllm_spec_tools.certify.checks import follows_schema, sampling_check
from vllm_spec_tools.certify.results import Check
from vllm_spec_tools.certify.samples import TokenSamples
from vllm_spec_tools.engines.jobs import JobOutput, Step

VALID = '[{"name":"self","size":true},{"name":"value","size":false},{"name":"self","size":true}]'


def baseline(control: float = 0.0) -> Baseline:
    """One of one setting, whose own samples have that evidence."""
    work = SimpleNamespace(settings={"top-k": {}}, prompts=[PROMPT])
    alone = TokenSamples([PROMPT], has_drafts=False, log_e=control)
    return cast(Baseline, SimpleNamespace(control={"top-k": alone}, probabilities=MarkovLaw(), work=work))


def checked(accepted: int, rejected: int, log_e: float = 0.0, plain: int = 0, control: float = 0.0) -> Check:
    """Samples with so many steps with one draft, and steps without."""
    samples = TokenSamples([PROMPT], drafted=100_000, log_e=log_e)
    for step in [Step(2, (1,))] * accepted + [Step(1, (1,))] * rejected + [Step(1)] * plain:
        samples.add(PROMPT, output([0, 1, 2][: step.size + 1], [Step(1), step]), 4)
    known = baseline(control)
    samples._end_round({PROMPT: known.probabilities.rows(PROMPT, {})})
    return sampling_check("top-k", "random draft lengths", samples, known, 1e-4)


@pytest.mark.parametrize(
    ("accepted", "rejected", "plain", "outcome"),
    [
        (200, 200, 0, "exact"),
        (199, 200, 0, "not tested"),
        (0, 100, 5000, "not tested"),
        (19, 500, 0, "not tested"),
        (500, 19, 0, "not tested"),
    ],
    ids=["enough", "one too few", "positions without drafts", "few accepted", "few rejected"],
)
def test_only_draft_tokens_whose_law_is_known_count_as_tested(
    accepted: int, rejected: int, plain: int, outcome: str
) -> None:
    """However many were verified: 100,000 here."""
    check = checked(accepted, rejected, plain=plain)
    assert check.outcome == outcome
    assert check.tested.get("draft 1 accepted", 0) == accepted
    assert check.tested["draft 1 rejected"] == rejected


def test_evidence_decides_however_few_drafts_there_are() -> None:
    assert checked(200, 200, log_e=20.0).outcome == "not exact"
    assert checked(0, 1, log_e=20.0).outcome == "not exact"
    assert checked(200, 200, log_e=9.2).outcome == "exact"


def test_nothing_is_said_where_the_samples_without_speculation_fail_as_well() -> None:
    assert checked(200, 200, log_e=20.0, control=20.0).outcome == "not tested"


@pytest.mark.parametrize(
    ("text", "reason", "content", "follows"),
    [
        (VALID, "stop", None, True),
        (VALID, "length", None, False),
        (VALID[:-1], "stop", None, False),
        ("[]", "stop", None, False),
        (VALID.replace("value", "other"), "stop", None, False),
        (VALID.replace("false", "0"), "stop", None, False),
        ("Let me think. " + VALID, "stop", VALID, True),
        ("Let me think. " + VALID, "stop", None, False),
    ],
)
def test_json_follows_the_schema_or_not(text: str, reason: str, content: str | None, follows: bool) -> None:
    assert follows_schema(JobOutput([], text, reason, None, None, content=content)) == follows
