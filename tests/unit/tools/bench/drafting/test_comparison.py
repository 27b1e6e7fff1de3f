"""The rounds of the benchmark of drafting, its figures and its report."""

from typing import Any, cast

import pytest

from tests.unit.tools.bench.drafting.cases import PLUGIN, STOCK, K, results, run, step
from vllm_spec_plugin.tools.bench.arm import Arm
from vllm_spec_plugin.tools.bench.arm_spec import NONE
from vllm_spec_plugin.tools.bench.arms import PlannedArm
from vllm_spec_plugin.tools.bench.drafting.comparison import SHARES, Results, Workload, figures, run_all
from vllm_spec_plugin.tools.bench.drafting.parts import INPUTS
from vllm_spec_plugin.tools.bench.drafting.report import GREEDY_NOTE, STOCK_NOTE, report_of
from vllm_spec_plugin.tools.bench.engine_args import ArmPlan
from vllm_spec_plugin.tools.bench.noise_gate import NoiseGate
from vllm_spec_plugin.tools.bench.records import Answer, Job, Step

PROMPTS = ("a", "b", "c")
ARMS = {NONE: PlannedArm(ArmPlan(None, 0, None)), PLUGIN: PlannedArm(ArmPlan("plugin.yaml", 4, {}))}


class ScriptedEngine:
    """Answers without an engine."""

    def __init__(self, name: str, log: list[tuple[str, Job]]) -> None:
        self.name, self.log = name, log

    def run(self, job: Job) -> Answer:
        self.log.append((self.name, job))
        tokens = [[ord(prompt)] * job.num_tokens for prompt in job.prompts]
        parts = {INPUTS: 1.0} if job.profiled else {}
        return Answer(1.0, 1.0, [[1]] * len(tokens), tokens, [step(len(tokens))], 0, 0, 0, parts)


def compared(workload: Workload) -> tuple[Results, list[tuple[str, Job]], list[str]]:
    log: list[tuple[str, Job]] = []
    told: list[str] = []
    engines: dict[str, Any] = {name: ScriptedEngine(name, log) for name in ARMS}
    gate = NoiseGate(0.0, busy=lambda: None, sleep=lambda seconds: None)
    found = run_all(ARMS, cast(dict[str, Arm], engines), workload, gate, lambda done, what: told.append(what))
    return found, log, told


def test_every_arm_gets_the_same_jobs_after_a_warm_up() -> None:
    _, log, told = compared(Workload(PROMPTS, (1, 2), (0.0, 1.0), 40, rounds=3, seed=10))
    jobs = {name: [job for arm, job in log if arm == name] for name in ARMS}
    assert jobs[NONE] == jobs[PLUGIN]
    assert [job.num_tokens for job in jobs[NONE]] == 4 * [32] + 12 * [40]
    singles = [job for job in jobs[NONE][4:] if len(job.prompts) == 1 and job.temperature == 0]
    assert [(job.prompts, job.seed) for job in singles] == [(("a",), 10), (("b",), 11), (("c",), 12)]
    pairs = [job.prompts for job in jobs[NONE][4:] if len(job.prompts) == 2 and job.temperature == 0]
    assert pairs == [("a", "b"), ("c", "a"), ("b", "c")]
    assert told[2] == "warming up: no speculation, batch 1, temperature 1"


def test_profiled_rounds_tell_parts_and_nothing_else() -> None:
    found, log, _ = compared(Workload(PROMPTS, (1,), (0.0,), 4, rounds=2, seed=0, profiled=True))
    assert (found.lengths, found.rounds) == ({NONE: 0, PLUGIN: 4}, 2)
    assert found.median(PLUGIN, (1, 0.0), f"part, {INPUTS}") == 1.0
    assert set(found.measurements.rounds(PLUGIN, "temperature 0", 1, "tokens_per_second")) == {0, 1}
    assert [job.profiled for _, job in log] == 6 * [False] + 6 * [True]


def of(*steps: Step, batch: int = 1, **fields: Any) -> dict[str, float | None]:
    return figures(run("plugin", steps, batch=batch, **fields).answer, batch, K)


def test_a_steps_time_is_the_drafters_and_the_targets() -> None:
    found = of(step(1, 5, 5, drafting_ms=2, num_drafted=4))
    assert found["draft_step"] == pytest.approx(0.45e-3)
    assert found["draft_step_prepared"] == pytest.approx(0.5e-3)
    assert found["target_step"] == pytest.approx(3e-3)
    assert of(*(step(1, 5, ms) for ms in (1, 2, 90)))["target_step"] == pytest.approx(2e-3)


@pytest.mark.parametrize(
    "irregular",
    [
        step(2, 10, 50, 40, 4, in_prompt=True),
        step(1, 5, 50, 40, 4),  # a request has ended
        step(2, 9, 50, 40, 4),  # a draft was cut
        step(2, 2, 50, 40, 4),  # nothing was drafted for it
    ],
)
def test_only_regular_steps_are_timed(irregular: Step) -> None:
    found = of(irregular, step(2, 10, 5, 2, 4), irregular, batch=2)
    assert found["target_step"] == pytest.approx(3e-3)
    assert found["draft_step_prepared"] == pytest.approx(0.5e-3)


def test_short_drafts_are_no_draft_steps_and_without_regular_steps_there_are_no_times() -> None:
    short, whole = step(1, 5, 5, 4, 2), step(1, 5, 5, 2, 4)
    assert of(short, short, whole)["draft_step_prepared"] == pytest.approx(0.5e-3)
    found = of(step(1, 3, 5, 2, 2))
    assert found["target_step"] is found["draft_step"] is found["tree_step"] is None


def test_trees_are_timed_where_there_are_any() -> None:
    tree = Step(1, 5, False, 4, 5e-3, 2e-3, 1.8e-3, 1e-3)
    assert of(tree)["tree_step"] == pytest.approx(1e-3)
    assert of(tree)["tree_share"] == pytest.approx(0.2)


def test_acceptance_and_throughput_are_of_the_whole_run() -> None:
    found = of(step(), batch=2, seconds=0.5, counts=(10, 40, 20))
    assert found["tokens_per_second"] == pytest.approx(12)
    assert (found["acceptance_length"], found["acceptance_rate"]) == (3.0, 0.5)
    assert of(step())["acceptance_length"] is None


def test_shares_add_up_to_all_the_time() -> None:
    steps = [step(1, 9, 10, in_prompt=True), step(1, 5, 5, 2, 4), step(1, 2, 3)]
    found = of(*steps, seconds=20e-3)
    shares = {name: found[f"share, {name}"] for name in SHARES}
    assert shares == pytest.approx({"drafting": 0.1, "target": 0.15, "prompts": 0.5, "irregular": 0.15, "between": 0.1})


def test_the_limit_follows_from_acceptance_and_the_times_of_steps() -> None:
    found = results()
    limit = {name: found.median(PLUGIN, (1, 0.0), f"limit, {name}") for name in ("free", "verifying", "drafting")}
    # A = 3; T(1) = 2 ms, T(5) = 3 ms, K d = 1.6 ms.
    assert limit == pytest.approx({"free": 3.0, "verifying": 2.0, "drafting": 6 / 4.6})
    assert found.median(NONE, (1, 0.0), "limit, free") is None


def test_the_report_has_the_limit_in_words_and_the_costs_beside_vllms() -> None:
    report = report_of(results(parts={INPUTS: 1.0}), {}, 3, True)
    (text,) = report.conclusion
    assert text.startswith(f"{PLUGIN}, batch 1, temperature 0: measured 1.17x; the limit is 1.30x, of which the rest")
    tables = {table.title: {row[2]: list(row[3:]) for row in table.rows} for table in report.tables}
    assert tables["Draft step, ms per draft token"][PLUGIN] == ["0.36", "0.50", "0.40", "0.50"]
    assert tables["Draft step, ms per draft token"][STOCK] == ["0.72", "-", "0.80", "-"]
    limit = tables["Limit of the speedup over no speculation; T and d in ms"][PLUGIN]
    assert limit == ["2.00", "3.00", "1.60", "3.00x", "2.00x", "1.30x", "1.17x", "10%"]
    assert tables["Where the time goes, %"].keys() == {NONE, STOCK, PLUGIN}
    assert tables["Where drafting goes, %"] == {PLUGIN: ["0.0", "0.0", "0.0", "100.0", "0.0"]}
    assert "Verifying trees instead of chains" not in tables
    assert report_of(results(rounds=2), {}, 3, True).problems == ["interrupted: these are the first 2 of 3 rounds"]


@pytest.mark.parametrize(
    ("temperature", "on_cpu", "notes"),
    [(1.0, True, [GREEDY_NOTE, STOCK_NOTE]), (1.0, False, [GREEDY_NOTE]), (0.0, True, [])],
)
def test_what_is_different_about_vllms_sampling_is_noted(temperature: float, on_cpu: bool, notes: list[str]) -> None:
    assert list(report_of(results(temperature), {}, 3, on_cpu).notes)[1:] == notes
