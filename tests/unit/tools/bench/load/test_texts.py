"""Requests whose answers are known in part."""

from dataclasses import replace

from vllm_spec_tools.bench.load.records import Request
from vllm_spec_tools.bench.load.texts import (
    AGENT,
    EDIT,
    RETRIEVAL,
    SAMPLES,
    TURNS,
    USELESS,
    Texts,
    known_request,
)
from vllm_spec_tools.bench.source_files import INSTRUCTION

FILES = ("a = 1\nb = 2\nc = 3\n", "d = 4\ne = 5\nf = 6\n")
TEXTS = Texts(("p", "q", "r"), FILES, FILES)


def requests(kind: str, count: int, texts: Texts = TEXTS, first: int = 0, streams: int = 1) -> list[Request]:
    return [known_request(kind, texts, first, place, streams, 9) for place in range(count)]


def test_eight_samples_in_a_row_are_of_one_prompt_at_temperature_1() -> None:
    found = requests(SAMPLES, 17, first=1)
    assert [request.prompt for request in found] == ["q"] * 8 + ["r"] * 8 + ["# Part 2\np"]
    assert {request.temperature for request in found} == {1.0}


def test_a_retrieval_prompt_has_its_passage_twice_and_begins_it_again() -> None:
    (request,) = requests(RETRIEVAL, 1)
    assert request.prompt.count("c = 3\n") == 2
    assert request.prompt.endswith("a = 1\nb = 2\n")
    assert request.prompt.count("a = 1\n") == 3
    assert request.temperature == 0.0


def test_a_prediction_is_the_answer_with_a_line_changed() -> None:
    before, after = requests(EDIT, 2)
    assert before.prediction == ""
    assert "a = 1\nb = 2\nc = 3\n" in before.prompt
    lines = [f"line {number}" for number in range(40)]
    texts = replace(TEXTS, answers={before.prompt: "\n".join(lines), after.prompt: "only line"})
    first, second = requests(EDIT, 2, texts)
    changed = [new for new, old in zip(first.prediction.split("\n"), lines, strict=True) if new != old]
    # 5% of 40, and at least one.
    assert len(changed) == 2
    assert second.prediction in TEXTS.lines
    assert set(changed) <= set(TEXTS.lines)
    assert requests(EDIT, 2, texts)[0] == first
    assert replace(first, prediction="") == before


def test_a_useless_prediction_is_another_file() -> None:
    (edit, _), (first, second) = requests(EDIT, 2), requests(USELESS, 2)
    assert first.prompt == edit.prompt
    assert first.prediction in second.prompt
    assert first.prediction not in first.prompt


def test_a_conversation_repeats_all_that_was_said() -> None:
    answers: dict[str, str] = {}
    for _ in range(TURNS):
        found = requests(AGENT, 2 * (TURNS + 1), replace(TEXTS, answers=answers), streams=2)
        answers |= {request.prompt: f"({len(request.prompt)})" for request in found}
    prompts = [request.prompt for request in found]
    assert prompts[:2] == ["p", "q"]
    for place in range(2, 2 * TURNS):
        earlier = prompts[place - 2]
        assert prompts[place] == f"{earlier}{answers[earlier]}\n{INSTRUCTION}"
    # Both streams begin anew.
    assert prompts[2 * TURNS :] == ["r", "# Part 2\np"]
