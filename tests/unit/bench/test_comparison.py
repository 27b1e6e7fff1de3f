"""The order of the rounds, and what runs in them."""

from typing import Any, cast

from tests.unit.bench.cases import step
from vllm_spec_plugin.bench.agreement import Agreement
from vllm_spec_plugin.bench.arms import Arm
from vllm_spec_plugin.bench.comparison import Results, Workload, num_runs, run_all, turns
from vllm_spec_plugin.bench.quiet import QuietMachine
from vllm_spec_plugin.bench.records import Answer, Job

PROMPTS = ("a", "b", "c")


class ScriptedArm:
    """Answers without an engine; its greedy outputs are the prompts' letters, and its own at other temperatures."""

    def __init__(self, name: str, log: list[tuple[str, Job]], wrong: bool = False) -> None:
        self.name, self.log, self.wrong = name, log, wrong

    def run(self, job: Job) -> Answer:
        self.log.append((self.name, job))
        tokens = [[ord(prompt) + self.wrong] * job.num_tokens for prompt in job.prompts]
        parts = {"a": 1.0} if job.profiled else {}
        return Answer(1.0, 1.0, [[1]] * len(tokens), tokens, [step(len(tokens))], 0, 0, 0, parts)

    def gap(self, token_ids: list[int], candidates: list[int]) -> float:
        return 1.0


def compared(workload: Workload, wrong: bool = False) -> tuple[Results, list[tuple[str, Job]], list[tuple[int, str]]]:
    log: list[tuple[str, Job]] = []
    told: list[tuple[int, str]] = []
    arms: dict[str, Any] = {"none": ScriptedArm("none", log), "plugin": ScriptedArm("plugin", log, wrong)}
    machine = QuietMachine(0.0, busy=lambda: None, sleep=lambda seconds: None)
    found = run_all(
        cast(dict[str, Arm], arms),
        {"none": 0, "plugin": 4},
        workload,
        machine,
        lambda done, what: told.append((done, what)),
    )
    return found, log, told


def test_arms_take_turns_and_none_is_always_first() -> None:
    order = [(number, arm) for number, _, _, arm in turns(["A", "B", "C"], [(1, 0.0)], 4)]
    assert "".join(arm for _, arm in order) == "ABCBCACABABC"
    assert [number for number, _ in order] == sorted(3 * [0, 1, 2, 3])


def test_all_arms_do_a_cell_before_the_next_begins() -> None:
    order = list(turns(["A", "B"], [(1, 0.0), (8, 0.0)], 1))
    assert order == [(0, 1, 0.0, "A"), (0, 1, 0.0, "B"), (0, 8, 0.0, "A"), (0, 8, 0.0, "B")]


def test_every_arm_gets_the_same_jobs_warm_up_first() -> None:
    workload = Workload(PROMPTS, (1, 2), (0.0, 1.0), 40, rounds=3, seed=10)
    _, log, _ = compared(workload)
    jobs = {name: [job for arm, job in log if arm == name] for name in ("none", "plugin")}
    assert jobs["none"] == jobs["plugin"]
    assert [job.num_tokens for job in jobs["none"]] == 4 * [32] + 12 * [40]
    singles = [job for job in jobs["none"][4:] if len(job.prompts) == 1 and job.temperature == 0]
    assert [job.prompts for job in singles] == [("a",), ("b",), ("c",)]
    assert [job.seed for job in singles] == [10, 11, 12]


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
    assert found.summaries["plugin", 1, 0.0].parts == {"a": 3.0}
    assert len(found.summaries["plugin", 1, 0.0].tokens_per_second) == 2
    assert [job.profiled for _, job in log] == 6 * [False] + 6 * [True]


def test_greedy_outputs_are_compared_with_the_first_arm() -> None:
    workload = Workload(PROMPTS, (1, 2), (0.0, 1.0), 4, rounds=3, seed=0)
    assert compared(workload)[0].agreements == {("plugin", 1): Agreement(3, 0, 0), ("plugin", 2): Agreement(6, 0, 0)}
    assert compared(workload, wrong=True)[0].agreements["plugin", 2] == Agreement(6, 0, 6)


def test_without_temperature_0_nothing_is_compared() -> None:
    assert compared(Workload(PROMPTS, (1,), (1.0,), 4, rounds=1, seed=0))[0].agreements == {}
