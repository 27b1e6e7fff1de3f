"""A recommendation from its jobs to its file and report."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.tools.planner.cases import ALPHA, ORIGIN, REQUESTS, ModelledEngines, expensive, plan, recommender
from vllm_spec_plugin.config import load_config
from vllm_spec_tools.bench.arms import NONE
from vllm_spec_tools.bench.records import LoadRequest
from vllm_spec_tools.planner.candidates import TREE
from vllm_spec_tools.planner.forecast import workloads_of
from vllm_spec_tools.planner.planning import Passes, plugin_yaml, traffic_plan, write_plugin_yaml
from vllm_spec_tools.planner.recommending import RECOMMENDED
from vllm_spec_tools.planner.report import report_of
from vllm_spec_tools.report.output import as_json


@pytest.mark.parametrize("one_at_a_time", [False, True])
def test_candidates_are_measured_in_turn_with_none_and_the_best_is_compared(
    tmp_path: Path, one_at_a_time: bool
) -> None:
    engines, told = ModelledEngines(), list[str]()
    found = plan(engines, told, one_at_a_time=one_at_a_time)
    wanted = recommender(tmp_path, one_at_a_time=one_at_a_time)
    arms = wanted.arms
    assert len(told) == wanted.total
    # In requests: no speculation is another engine, of which nothing can be asked.
    asked = {(arm, job.spec_tokens, job.spec_method) for arm, jobs in engines.jobs.items() for job in jobs}
    settings = {(name, arm.spec_tokens, arm.spec_method) for name, arm in arms.items()}
    assert asked == {*settings, (RECOMMENDED, None, None)}
    assert settings >= {(NONE, None, None), ("suffix, K = 4", 4, "suffix"), ("cascade, K = 1", 1, None)}
    sent = {arm: [(job.streams, job.phases, job.seed) for job in jobs] for arm, jobs in engines.jobs.items()}
    passes = [job for job in sent[NONE] if job[1][0].is_pass]
    # Two rounds and warm-ups of two workloads at two levels, the same for all; then both arms do the same.
    assert len(passes) == 2 * 2 * (4 if one_at_a_time else 3)
    assert all(sent[arm] == passes for arm in arms if arm != NONE)
    assert [job for job in sent[NONE] if job not in passes] == sent[RECOMMENDED]
    assert len(engines.closed) == 1
    assert found.compared is not None
    assert (found.choice.candidate.name, found.verdict.is_on) == ("cascade", True)


def test_where_nothing_is_expected_to_gain_nothing_is_compared(tmp_path: Path) -> None:
    found = plan(ModelledEngines(verify=expensive))
    assert (found.compared, found.verdict.is_on) == (None, False)
    assert "nothing that was considered would draft" in write_plugin_yaml(found, ORIGIN, tmp_path / "a", anyway=True)
    report = report_of(found, ORIGIN, 3)
    assert report.conclusion[0].startswith("Leave it off")
    assert json.loads(as_json(report))["recommendation"]["choice"]["tokens"] == 0


def test_passes_have_prompts_of_their_workload_and_schemas_stay_with_them() -> None:
    requests = [LoadRequest("json", f"text {i}", 0.0, 20, "p" * i, schema=f'{{"enum": [{i}]}}') for i in range(3)]
    requests += [
        LoadRequest("chat", "b", 0.7, 64),
        LoadRequest("chat", "c", 1.0, 32),
        LoadRequest("json", "d", 0.0, 40),
    ]
    edit, warm, hot = workloads_of(requests)
    assert [(one.name, one.num_tokens) for one in (edit, warm, hot)] == [
        ("json", 25),
        ("chat, T = 0.7", 64),
        ("chat, T = 1", 32),
    ]
    assert edit.share == pytest.approx(4 / 6)
    passes = Passes((edit, warm, replace(hot, requests=(replace(hot.requests[0], turns=("more",)),))), (3,), 5)
    # First turns only.
    assert {one.turns for one in passes.job(("chat, T = 1", 3), 0).phases[0].requests} == {()}
    assert passes.cells == [("json", 3), ("chat, T = 0.7", 3), ("chat, T = 1", 3)]
    first, second = (passes.job(("json", 3), number).phases[0].requests for number in (0, 1))
    assert "".join(one.prompt[-1] for one in (*first, *second)) == "012d01"
    given = {one.prompt: (one.schema, one.prediction) for one in requests}
    assert all(given[one.prompt] == (one.schema, one.prediction) and one.num_tokens == 25 for one in first)
    assert {one.num_tokens for one in passes.job(("json", 3), 0, is_warm_up=True).phases[0].requests} == {16}


def test_the_comparison_mixes_all_requests_with_lengths_that_differ() -> None:
    load = traffic_plan(REQUESTS, (2,), 5, 0)
    [cell] = load.cells
    phase = load.job(cell, 0).phases[0]
    assert {one.prompt for one in phase.requests[: len(REQUESTS)]} == {one.prompt for one in REQUESTS}
    lengths = {one.num_tokens for one in phase.requests}
    assert len(lengths) > 3
    assert 32 <= min(lengths) < max(lengths) <= 98
    assert phase.num_tokens == 2 * 4 * 65


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_file_is_the_candidate_with_the_policy_that_stops_where_nothing_pays(tmp_path: Path, place: int) -> None:
    found, path = plan(), tmp_path / "plugin.yaml"
    choice = found.forecasts[place]
    # No name gets out of its comment.
    origin = ORIGIN | {"models": {"target": "a\nproposer: {}"}}
    path.write_text(plugin_yaml(choice, found.verdict, origin), encoding="utf-8")
    config = load_config(path)
    assert (config.proposer.method, config.verification.lenience) == (choice.candidate.proposer["method"], 1)
    assert (config.draft_length.policy, config.draft_length.tokens) == ("optimal", choice.tokens)


def cheap_for_one(num_tokens: int) -> float:
    """A target that is busy with more than five tokens."""
    return 0.010 if num_tokens <= 5 else expensive(num_tokens)


def test_the_file_does_not_contradict_what_the_comparison_measured(tmp_path: Path) -> None:
    found, path = plan(ModelledEngines(cheap_for_one, ratios={1: 1.9, 8: 2.23})), tmp_path / "plugin.yaml"
    # The forecast saw no gain at 8 streams, where the comparison gained most.
    assert found.choice.best[8].tokens == 0
    write_plugin_yaml(found, ORIGIN, path, anyway=False)
    written = " ".join(path.read_text().replace("#", " ").split())
    assert "1.90x at 1 stream, 2.23x at 8 streams (measured; predicted" in written
    assert "predicted to be fastest: 4 at 1 stream. tokens: 4" in written
    assert not any(text in written for text in ("does not pay", "0 at 8"))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_aiconfigurator_gets_draft_length_and_accepted_draft_tokens_per_step(place: int) -> None:
    found = plan()
    choice = found.forecasts[place]
    report = report_of(replace(found, choice=choice, compared=None), ORIGIN, 3)
    alpha = ALPHA[choice.candidate.name]
    accepted = sum(alpha**position for position in (1, 2, 3, 4))
    [text] = [text for text in report.conclusion if "AIConfigurator" in text]
    assert f": --nextn 4 --nextn-accepted {accepted:.2f} ({choice.candidate.name}" in text
    own = report.data["recommendation"]["aiconfigurator"]
    assert own == {"nextn": 4, "nextn_accepted": pytest.approx(accepted, rel=0.01)}


def test_aiconfigurator_gets_what_is_accepted_also_where_nothing_pays_and_nothing_of_trees() -> None:
    choice = plan(ModelledEngines(verify=expensive)).choice
    assert choice.tokens == 0
    assert choice.nextn is not None
    assert [*choice.nextn] == pytest.approx([1, ALPHA[choice.candidate.name]], rel=0.01)
    assert replace(choice, candidate=replace(choice.candidate, name=TREE)).nextn is None


def test_the_report_has_the_answer_first_and_json_everything() -> None:
    found = plan()
    report = report_of(found, ORIGIN, 3)
    assert report.conclusion[0] == found.verdict.answer
    [rows] = [table.rows for table in report.tables if table.title == "Prediction"]
    best = found.choice.best[1]
    [row] = [row for row in rows if row[0] == "cascade"]
    assert row[-3:] == [f"{best.speedup:.2f}x", "1.90", f"{best.speedup / 1.9 - 1:+.0%}"]
    data = json.loads(as_json(report))
    assert (data["report"], data["arms"]) == ("bench", [NONE, RECOMMENDED])
    own = data["recommendation"]
    assert own["is_on"]
    assert own["choice"] == {"candidate": "cascade", "tokens": 4}
    assert {one["candidate"] for one in own["acceptance"]} == {"suffix", "draft_model", "cascade"}
    assert len(own["forecasts"][1]["levels"][0]["all"]) == 4
    assert [one["ratio"]["median"] for one in data["cells"] if one["arm"] == RECOMMENDED] == [1.9, 1.5]
