"""The order of a sweep's rounds, what runs in them, and greedy outputs against the reference's."""

import contextlib
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.tools.bench.load.cases import ARMS, run, steady, windows
from vllm_spec_tools.bench.arms import NONE, Engines
from vllm_spec_tools.bench.load.sweep import (
    Agreement,
    SweepPlan,
    SweepResults,
    TopTwo,
    compare,
    figures,
    results_of,
    run_sweep,
)
from vllm_spec_tools.bench.load.workloads import EASY, EQUAL, FIRST_PASS, MIXED, SWITCHING, LoadSizes
from vllm_spec_tools.bench.noise_gate import NoiseGate
from vllm_spec_tools.bench.records import LoadAnswer, LoadJob, LoadOutput, LoadRequest, LoadRun, Phase
from vllm_spec_tools.bench.run_file import RunFile

SPEED = "tokens_per_second"
PLAN = SweepPlan(((EASY, 1), (MIXED, 2), (SWITCHING, 1)), ("a", "b", "c"), LoadSizes(), rounds=2, seed=5)


class ScriptedEngine:
    """Answers without an engine, a third faster with each draft token that it may draft.

    The first of K = 4's outputs ends with another token than the others'.
    """

    def __init__(self, name: str, log: list[tuple[str, LoadJob]], asked: list[tuple[Any, ...]]) -> None:
        self.name, self.log, self.asked = name, log, asked
        self.numbers: list[int | None] = []

    def load(self, job: LoadJob) -> LoadAnswer:
        self.log.append((self.name, job))
        outputs = [LoadOutput([1, 2, 3 + (self.name == "fixed K = 4")], True), LoadOutput([4], False)]
        rate = 10.0 * (1 + (job.spec_tokens or 0) / 3)
        return run(self.name, [steady(rate, 800, outputs=outputs) for _ in job.phases]).answer

    def top_two(self, *question: Any) -> dict[int, float]:
        self.asked.append((self.name, *question))
        return {3: 0.0, 4: -1.0}


class ScriptedEngines:
    """Engines that need no start; they note for which rounds they are asked."""

    def __init__(self, engines: dict[str, ScriptedEngine]) -> None:
        self.engines = engines
        self.facts = {name: {"dtype": "torch.float32"} for name in engines}

    def of(self, name: str, number: int | None = None) -> ScriptedEngine:
        self.engines[name].numbers.append(number)
        return self.engines[name]


def swept(
    plan: SweepPlan = PLAN,
    most_runs: int = 1000,
    asked: list[tuple[Any, ...]] | None = None,
    *,
    one_at_a_time: bool = False,
    file: RunFile | None = None,
) -> tuple[SweepResults, list[tuple[str, LoadJob]], list[str]]:
    log: list[tuple[str, LoadJob]] = []
    told: list[str] = []
    questions: list[tuple[Any, ...]] = [] if asked is None else asked
    engines = ScriptedEngines({name: ScriptedEngine(name, log, questions) for name in ARMS})
    machine = NoiseGate(0.0, busy=lambda: None, sleep=lambda seconds: None)

    def on_run(what: str) -> None:
        if len(told) == most_runs:
            told.append(what)
            raise KeyboardInterrupt
        told.append(what)

    found = run_sweep(ARMS, cast(Engines, engines), plan, machine, on_run, one_at_a_time=one_at_a_time, file=file)
    return found, log, told


def test_arms_take_turns_within_a_cell_and_do_the_same() -> None:
    _, log, _ = swept()
    counted = log[len(ARMS) * len(PLAN.cells) :]
    cells = [counted[start : start + len(ARMS)] for start in range(0, len(counted), len(ARMS))]
    assert len(cells) == 2 * len(PLAN.cells)
    for cell in cells:
        assert {name for name, _ in cell} == set(ARMS)
        assert len({(job.streams, job.phases, job.seed) for _, job in cell}) == 1
    assert (cells[0][0][0], cells[len(PLAN.cells)][0][0]) == (NONE, "fixed K = 1")


def test_one_at_a_time_an_arm_does_a_whole_round_and_no_job_twice() -> None:
    plan = SweepPlan(((EASY, 1), (EQUAL, 2)), PLAN.prompts, PLAN.sizes, rounds=2, seed=5)
    found, log, told = swept(plan, one_at_a_time=True)
    assert len(told) == 2 * 2 * len(ARMS) * 2 + 1
    names = list(ARMS)
    assert [name for name, _ in log] == [name for name in names + names[::-1] for _ in range(4)]
    # A warm-up, the same job, and passes that have no warm-up.
    assert [len(job.phases) for _, job in log[:4]] == [1, 1, 0, 5]
    assert found.cells == ((EASY, 1), (EQUAL, 2), (FIRST_PASS, 2))


def test_an_interrupted_sweep_goes_on_and_repeats_only_warm_ups_of_what_is_left(tmp_path: Path) -> None:
    whole, _, _ = swept()
    num_warm_ups = len(ARMS) * len(PLAN.cells)
    for num_done in (1, len(ARMS) + 2, num_warm_ups + 1, 2 * num_warm_ups):
        path = tmp_path / str(num_done)
        with contextlib.suppress(KeyboardInterrupt):
            swept(most_runs=num_warm_ups + num_done, file=RunFile(path, {}))
        found, more, _ = swept(file=RunFile(path, {}))
        assert ([*found.measurements.rows()], found.agreements) == ([*whole.measurements.rows()], whole.agreements)
        counted = [job for job in more if job[1].phases[0].num_tokens > 100]
        assert len(counted) == 2 * num_warm_ups - num_done
        assert (not more) == (num_done == 2 * num_warm_ups)


def test_passes_are_told_by_the_first_and_the_median_of_the_last_ones() -> None:
    rates = (10.0, 99.0, 30.0, 20.0, 25.0)
    runs = [run(arm, [steady(rate) for rate in rates], workload=EQUAL) for arm in ARMS]
    found = results_of(runs, ARMS, [(EQUAL, 1)], {})
    speeds = [found.measurements.median(NONE, workload, 1, SPEED) for workload in (EQUAL, FIRST_PASS)]
    assert speeds == [pytest.approx(25.0), pytest.approx(10.0)]


def test_arms_that_share_an_engine_ask_for_their_own_draft_length() -> None:
    found, log, _ = swept()
    assert {(name, job.spec_tokens) for name, job in log} == {(name, arm.spec_tokens) for name, arm in ARMS.items()}
    fast, slow = (found.measurements.median(arm, EASY, 1, SPEED) or 0.0 for arm in ("fixed K = 4", "fixed K = 1"))
    assert fast > slow


def test_greedy_outputs_are_compared_with_those_without_drafts() -> None:
    asked: list[tuple[Any, ...]] = []
    found, _, told = swept(asked=asked)
    # Two rounds of two requests; of `mixed` one is greedy, of `switching` two phases are.
    assert found.agreements["optimal", EASY, 1] == Agreement(4, 0, 0)
    assert found.agreements["fixed K = 4", EASY, 1] == Agreement(4, 0, 2)
    assert found.agreements["fixed K = 4", MIXED, 2] == Agreement(2, 0, 2)
    assert found.agreements["vLLM's ngram, K = 4", SWITCHING, 1] == Agreement(8, 0, 0)
    assert found.num_wrong == 2 + 2 + 4
    assert told[-1] == "comparing greedy outputs"
    # The arm without drafts is asked, once for each text.
    assert {name for name, *_ in asked} == {NONE}
    assert len(asked) == len(set(asked))
    assert asked[0] == (NONE, "a", (1, 2), "")


def test_interrupted_it_tells_what_whole_rounds_came_to() -> None:
    per_round = len(ARMS) * len(PLAN.cells)
    found, _, _ = swept(most_runs=3 * per_round - 1)
    assert found.rounds == 1
    assert found.cells == PLAN.cells
    assert {row.round for row in found.measurements.rows()} == {0}
    assert swept()[0].rounds == 2


def test_figures_are_of_all_phases_together() -> None:
    found = figures(run("a", [steady(10.0, 100), steady(40.0, 100)], counts=(10, 40, 30)).answer)
    assert found[SPEED] == pytest.approx(16.0)
    # Per draft, and per request and step.
    assert (found["acceptance_length"], found["draft_length"]) == (4.0, 1.0)
    assert [found[name] for name in ("drafts", "draft_tokens", "accepted_tokens")] == [20, 80, 60]
    found = figures(run("a", [steady(10.0), steady(10.0)]).answer)
    assert (found["acceptance_length"], found["draft_length"]) == (None, 0.0)
    # Percentiles over requests.
    assert [found[f"ttft_{share}"] for share in ("p50", "p95", "p99")] == pytest.approx([0.2, 0.9, 0.9])
    assert [found["tpot_p50"], found["latency_p99"]] == pytest.approx([0.1, 2.0])
    found = figures(run("a", [windows((10.0,))]).answer)
    assert (found["ttft_p50"], found["tpot_p99"], found["latency_p50"]) == (None, None, None)


# The texts of a round's only phase: token ids, and whether that is all.
Texts = list[tuple[list[int], bool]]


def nothing(prompt: str, text: tuple[int, ...], schema: str) -> dict[int, float]:
    raise AssertionError("nothing to ask")


def job(*temperatures: float) -> LoadJob:
    requests = (
        LoadRequest("easy", f"prompt {place}", temperature, 9, schema=str(place))
        for place, temperature in enumerate(temperatures)
    )
    return LoadJob(1, (Phase(tuple(requests), 9),), 0)


def wrote(arm: str, *phases: Texts, number: int = 0) -> LoadRun:
    outputs = [[LoadOutput(token_ids, has_ended) for token_ids, has_ended in texts] for texts in phases]
    return run(arm, [steady(10.0, outputs=phase) for phase in outputs], number=number)


def compared(ours: Texts, theirs: Texts, top_two: TopTwo = nothing, temperature: float = 0.0) -> Agreement:
    return compare([wrote("optimal", ours)], [wrote("none", theirs)], {0: job(temperature, temperature)}, top_two, 1e-4)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([([1, 2], True), ([3], True)], [([1, 2], True), ([3], True)], Agreement(2, 0, 0)),
        # Compares the common length of two outputs; skips a pair of which one is empty.
        ([([1, 2, 3], True), ([4, 5], False)], [([1], False), ([4, 5, 6], False)], Agreement(2, 0, 0)),
        ([([1], True), ([4], False)], [([1], True), ([], False)], Agreement(1, 0, 0)),
        ([([1], True), ([4], True), ([7], False)], [([1], True)], Agreement(1, 0, 0)),
        # One has ended before the other goes on.
        ([([1], True)], [([1, 2], False)], Agreement(1, 0, 1)),
        ([([1, 2], False)], [([1], True)], Agreement(1, 0, 1)),
    ],
)
def test_outputs_agree_as_far_as_both_got(ours: Texts, theirs: Texts, expected: Agreement) -> None:
    assert compared(ours, theirs) == expected


@pytest.mark.parametrize(("distance", "expected"), [(1e-5, Agreement(2, 1, 0)), (0.5, Agreement(2, 0, 1))])
def test_tokens_that_are_not_equally_likely_after_the_text_that_both_share_are_wrong(
    distance: float, expected: Agreement
) -> None:
    asked = []

    def top_two(prompt: str, text: tuple[int, ...], schema: str) -> dict[int, float]:
        asked.append((prompt, text, schema))
        return {5: -1.0, 6: -1.0 - distance}

    ours, theirs = [([3], True), ([1, 2, 6, 9], True)], [([3], True), ([1, 2, 5, 8], True)]
    assert compared(ours, theirs, top_two) == expected
    assert asked == [("prompt 1", (1, 2), "1")]


def test_only_greedy_outputs_of_the_same_round_are_compared_and_a_list_begins_anew_at_its_end() -> None:
    assert compared([([1], True)], [([2], True)], temperature=1.0) == Agreement(0, 0, 0)
    ours, theirs = [([1], True), ([2], True), ([3], True)], [([1], True), ([9], True), ([4], True)]
    jobs = {number: job(0.0, 1.5) for number in (0, 1)}
    runs = [wrote("a", ours), wrote("a", [([7], True)], number=1)]
    found = compare(runs, [wrote("none", theirs)], jobs, lambda *asked: {3: 0.0, 4: -1.0}, 1e-4)
    assert found == Agreement(2, 0, 1)


@pytest.mark.parametrize(("second", "expected"), [("one", Agreement(3, 0, 1)), ("other", Agreement(1, 0, 0))])
def test_turns_are_compared_as_long_as_their_prompts_are_the_same(second: str, expected: Agreement) -> None:
    asked = []

    def top_two(prompt: str, text: tuple[int, ...], schema: str) -> dict[int, float]:
        asked.append((prompt, text))
        return {3: 0.0, 4: -1.0}

    def wrote_turns(second: str, last: int) -> LoadRun:
        turns = (LoadOutput([2], True, second), LoadOutput([last], True, f"two after {second}"))
        return run("a", [steady(10.0, outputs=[LoadOutput([1], True, turns=turns)])])

    assert compare([wrote_turns(second, 4)], [wrote_turns("one", 3)], {0: job(0.0)}, top_two, 1e-4) == expected
    assert asked == [("two after one", ())] * expected.wrong
