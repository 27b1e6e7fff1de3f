"""Outcomes of checks."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.tools.certify.markov import PROMPT, MarkovLaw, output
from vllm_spec_tools.certify.baseline import SCHEMA, Baseline, _half_structured
from vllm_spec_tools.certify.checks import check_json, follows_schema, sampling_check
from vllm_spec_tools.certify.results import Check
from vllm_spec_tools.certify.samples import TokenSamples
from vllm_spec_tools.certify.settings import predicting
from vllm_spec_tools.engines.jobs import CertifyRequest, Job, JobOutput, JobResult, Step

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


class JsonEngine:
    """Writes valid JSON; a sampled output's tokens are its seed, or another number where there are drafts."""

    def __init__(self, from_grammar: int, wrong_seed: int | None = None) -> None:
        self.from_grammar, self.wrong_seed = from_grammar, wrong_seed

    def run(self, job: Job) -> JobResult:
        is_drafted = all("extra_args" not in request.params for request in job.requests)
        outputs = [[self.output(request.params, is_drafted)] for request in job.requests]
        metrics = {"vllm:spec_decode_num_draft_tokens": 500.0, "verified:grammar": float(self.from_grammar)}
        return JobResult(outputs, [], [], metrics, 1.0)

    def output(self, params: dict[str, Any], is_drafted: bool) -> JobOutput:
        seed = params.get("seed", 0)
        token = 99 if is_drafted and seed == self.wrong_seed else seed
        return JobOutput([token], VALID, "stop", None, None)


def checked_json(from_grammar: int, wrong_seed: int | None = None, **options: Any) -> Check:
    requests = [CertifyRequest(PROMPT, {"temperature": float(i % 2)}) for i in range(4)]
    engine: Any = JsonEngine(from_grammar, wrong_seed)
    known = SimpleNamespace(
        json=engine.run(Job(requests)),
        work=SimpleNamespace(json=requests),
        facts={"dtype": "float32", "reasoning_end": None},
    )
    return check_json(engine, cast(Baseline, known), "as configured", **options)


@pytest.mark.parametrize(("from_grammar", "outcome"), [(0, "not tested"), (39, "not tested"), (40, "exact")])
def test_only_drafts_from_the_grammar_count_where_there_should_be_some(from_grammar: int, outcome: str) -> None:
    check = checked_json(from_grammar, uses_grammar=True)
    assert (check.outcome, check.is_required, check.drafted) == (outcome, True, 500)
    assert f"4 outputs, all valid; {from_grammar} draft tokens from the grammar" in check.detail
    others = checked_json(from_grammar)
    assert (others.outcome, others.is_required, others.detail) == ("exact", False, "4 outputs, all valid")


def test_seeded_json_with_drafts_from_the_grammar_is_that_without_drafts() -> None:
    check = checked_json(500, wrong_seed=3, uses_grammar=True)
    assert check.outcome == "not exact"
    assert "1 of 2 with a seed differ from those without drafts" in check.detail
    # Where seeded outputs depend on drafts nothing is compared.
    assert checked_json(500, wrong_seed=3, uses_grammar=True, has_seeds=False).outcome == "exact"


def test_of_three_predictions_one_is_right_one_is_turned_round_and_one_is_missing() -> None:
    found = predicting([CertifyRequest((1,), {"seed": number}) for number in range(3)], [[5, 6], [7, 8]])
    assert [request.params.get("extra_args") for request in found] == [
        {"spec_prediction": [5, 6]},
        {"spec_prediction": [8, 7]},
        None,
    ]


def test_every_second_request_has_the_schema_which_ends_it() -> None:
    free, structured = _half_structured([CertifyRequest(PROMPT, {"ignore_eos": True})] * 2)
    assert free.params == {"ignore_eos": True}
    assert structured.params == {"ignore_eos": False, "structured_outputs": {"json": SCHEMA}}
