"""Outcomes of checks."""

import dataclasses
from typing import Any, cast

import pytest

from vllm_spec_tools.certify.baseline import Baseline
from vllm_spec_tools.certify.checks import follows_schema, sampling_check
from vllm_spec_tools.certify.jobs import JobOutput
from vllm_spec_tools.certify.samples import TokenSamples

VALID = '[{"name":"self","size":true},{"name":"value","size":false},{"name":"self","size":true}]'


@dataclasses.dataclass
class Known:
    """A baseline of one setting, of which nothing was sampled but the evidence is given."""

    control: dict[str, TokenSamples]
    law: Any = ()
    work: Any = dataclasses.field(default_factory=lambda: type("Work", (), {"settings": {"top-k": {}}}))


def outcome(log_e: float, drafted: int, control: float = 0.0) -> str:
    samples = TokenSamples(drafted=drafted, log_e=log_e)
    samples.two[(1,)].num_pairs = 1
    known = cast(Baseline, Known({"top-k": TokenSamples(log_e=control)}))
    return sampling_check("top-k", "fixed draft length", samples, known, 1e-4).outcome


def test_evidence_decides_and_too_few_drafts_never_pass() -> None:
    assert outcome(20.0, 1000) == "not exact"
    assert outcome(20.0, 0) == "not exact"
    assert outcome(0.0, 10) == "not tested"


def test_nothing_is_said_where_the_samples_without_speculation_fail_as_well() -> None:
    assert outcome(20.0, 1000, control=20.0) == "not tested"


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
