"""The order of the rounds, and what runs in them."""

from typing import Any, cast

from tests.unit.tools.bench.drafting.cases import step
from vllm_spec_plugin.tools.bench.arms import Arm
from vllm_spec_plugin.tools.bench.drafting.comparison import Results, Workload, num_runs, run_all
from vllm_spec_plugin.tools.bench.planned_arms import PlannedArm
from vllm_spec_plugin.tools.bench.plans import ArmPlan
from vllm_spec_plugin.tools.bench.quiet import QuietMachine
from vllm_spec_plugin.tools.bench.records import Answer, Job

PROMPTS = ("a", "b", "c")
ARMS = {"none": PlannedArm(ArmPlan(None, 0, None)), "K = 4": PlannedArm(ArmPlan("plugin.yaml", 4, {}))}


class ScriptedEngine:
    """Answers without an engine."""

    def __init__(self, name: str, log: list[tuple[str, Job]]) -> None:
        self.name, self.log = name, log

    def run(self, job: Job) -> Answer:
        self.log.append((self.name, job))
        tokens = [[ord(prompt)] * job.num_tokens for prompt in job.prompts]
        parts = {"a": 1.0} if job.profiled else {}
        return Answer(1.0, 1.0, [[1]] * len(tokens), tokens, [step(len(tokens))], 0, 0, 0, parts)


def compared(workload: Workload) -> tuple[Results, list[tuple[str, Job]], list[tuple[int, str]]]:
    log: list[tuple[str, Job]] = []
    told: list[tuple[int, str]] = []
    engines: dict[str, Any] = {name: ScriptedEngine(name, log) for name in ARMS}
    machine = QuietMachine(0.0, busy=lambda: None, sleep=lambda seconds: None)
    found = run_all(
        ARMS, cast(dict[str, Arm], engines), workload, machine, lambda done, what: told.append((done, what))
    )
    return found, log, told


def test_every_arm_gets_the_same_jobs_warm_up_first() -> None:
    _, log, _ = compared(Workload(PROMPTS, (1, 2), (0.0, 1.0), 40, rounds=3, seed=10))
    jobs = {name: [job for arm, job in log if arm == name] for name in ARMS}
    assert jobs["none"] == jobs["K = 4"]
    assert [job.num_tokens for job in jobs["none"]] == 4 * [32] + 12 * [40]
    singles = [job for job in jobs["none"][4:] if len(job.prompts) == 1 and job.temperature == 0]
    assert [job.prompts for job in singles] == [("a",), ("b",), ("c",)]
    assert [job.seed for job in singles] == [10, 11, 12]


def test_arms_take_turns() -> None:
    _, log, _ = compared(Workload(PROMPTS, (1,), (0.0,), 4, rounds=2, seed=0))
    assert [name for name, _ in log] == ["none", "K = 4", "none", "K = 4", "K = 4", "none"]


def test_a_batch_has_different_prompts() -> None:
    _, log, _ = compared(Workload(PROMPTS, (2,), (0.0,), 4, rounds=2, seed=0))
    assert [job.prompts for name, job in log if name == "none"][1:] == [("a", "b"), ("c", "a")]


def test_progress_is_told_for_every_run() -> None:
    workload = Workload(PROMPTS, (1,), (0.0,), 4, rounds=2, seed=0, profiled=True)
    _, log, told = compared(workload)
    assert [done for done, _ in told] == list(range(num_runs(2, workload)))
    assert len(log) == len(told)
    assert told[2] == (2, "round 1/2: none, batch 1, temperature 0")


def test_profiled_rounds_tell_parts_and_nothing_else() -> None:
    found, log, _ = compared(Workload(PROMPTS, (1,), (0.0,), 4, rounds=2, seed=0, profiled=True))
    assert found.arms == {"none": 0, "K = 4": 4}
    assert found.summaries["K = 4", 1, 0.0].parts == {"a": 3.0}
    assert len(found.summaries["K = 4", 1, 0.0].tokens_per_second) == 2
    assert [job.profiled for _, job in log] == 6 * [False] + 6 * [True]
