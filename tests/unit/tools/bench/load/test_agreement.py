"""Greedy outputs against the reference's."""

import pytest

from tests.unit.tools.bench.load.cases import run, steady
from vllm_spec_tools.bench.load.sweep import Agreement, TopTwo, compare
from vllm_spec_tools.bench.records import LoadJob, LoadRun, Output, Phase, Request

# The texts of a round's only phase: token ids, and whether that is all.
Texts = list[tuple[list[int], bool]]


def nothing(prompt: str, text: tuple[int, ...]) -> dict[int, float]:
    raise AssertionError("nothing to ask")


def job(*temperatures: float) -> LoadJob:
    requests = (Request("easy", f"prompt {place}", temperature, 9) for place, temperature in enumerate(temperatures))
    return LoadJob(1, (Phase(tuple(requests), 9),), 0)


def wrote(arm: str, *phases: Texts, number: int = 0) -> LoadRun:
    outputs = [[Output(token_ids, has_ended) for token_ids, has_ended in texts] for texts in phases]
    return run(arm, [steady(10.0, outputs=phase) for phase in outputs], number=number)


def compared(ours: Texts, theirs: Texts, top_two: TopTwo = nothing, temperature: float = 0.0) -> Agreement:
    return compare([wrote("optimal", ours)], [wrote("none", theirs)], {0: job(temperature, temperature)}, top_two, 1e-4)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([([1, 2], True), ([3], True)], [([1, 2], True), ([3], True)], Agreement(2, 0, 0)),
        # Compared as far as both have written; where one has nothing, not at all.
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


def test_the_two_tokens_are_weighed_after_the_text_that_both_share() -> None:
    asked = []

    def top_two(prompt: str, text: tuple[int, ...]) -> dict[int, float]:
        asked.append((prompt, text))
        return {5: -1.0, 6: -1.0}

    ours, theirs = [([3], True), ([1, 2, 6, 9], True)], [([3], True), ([1, 2, 5, 8], True)]
    assert compared(ours, theirs, top_two) == Agreement(2, 1, 0)
    assert asked == [("prompt 1", (1, 2))]


@pytest.mark.parametrize(("distance", "expected"), [(1e-5, Agreement(1, 1, 0)), (0.5, Agreement(1, 0, 1))])
def test_tokens_that_are_not_equally_likely_are_wrong(distance: float, expected: Agreement) -> None:
    assert compared([([1, 5], False)], [([1, 6], False)], lambda *asked: {5: 0.0, 6: -distance}) == expected


def test_only_greedy_outputs_are_compared_and_a_list_of_requests_begins_anew_at_its_end() -> None:
    assert compared([([1], True)], [([2], True)], temperature=1.0) == Agreement(0, 0, 0)
    ours, theirs = [([1], True), ([2], True), ([3], True)], [([1], True), ([9], True), ([4], True)]
    jobs = {0: job(0.0, 1.5)}
    found = compare([wrote("a", ours)], [wrote("none", theirs)], jobs, lambda *asked: {3: 0.0, 4: -1.0}, 1e-4)
    assert found == Agreement(2, 0, 1)


def test_rounds_and_phases_are_compared_with_their_own() -> None:
    phase = job(0.0).phases[0]
    jobs = {number: LoadJob(1, (phase, phase), number) for number in range(2)}
    ours = [wrote("optimal", [([1], True)], [([2], True)], number=0), wrote("optimal", [([3], True)], [], number=1)]
    theirs = [wrote("none", [([3], True)], [], number=1), wrote("none", [([1], True)], [([2], True)], number=0)]
    assert compare(ours, theirs, jobs, nothing, 1e-4) == Agreement(3, 0, 0)
