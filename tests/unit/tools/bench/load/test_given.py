"""Requests of files of prompts: which are sent, what is left out, and what is said of it."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.bench.load.given import Choice, context_of, file_notes, given_job, given_requests
from vllm_spec_tools.bench.load.workloads import LoadSizes
from vllm_spec_tools.bench.records import LoadRequest
from vllm_spec_tools.prompts import GivenPrompt, load_tokenizer

TARGET = str(model_path("target"))
SIZES = LoadSizes(stream_tokens=100, min_total_tokens=300)
ALL_OF_THEM = Choice(0.3, 64, may_end=True, context=2048)


def rows(path: Path, *values: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def sent(
    paths: Sequence[Path], choice: Choice = ALL_OF_THEM, workload: Sequence[str] = ()
) -> tuple[list[str], list[dict[str, Any]]]:
    requests, records = given_requests(paths, workload, TARGET, choice)
    return [request.prompt for request in requests], records


def test_options_count_where_a_prompt_says_nothing() -> None:
    given = [
        GivenPrompt(prompt="x = 1"),
        GivenPrompt(prompt="x", max_tokens=5, temperature=0.5, workload="w", prediction="p"),
        GivenPrompt(prompt="x", max_tokens=500),
        GivenPrompt(prompt="x", max_tokens=1, schema={"enum": ["one", "two"]}),
    ]
    tokenizer = load_tokenizer(TARGET)
    found = [replace(ALL_OF_THEM, may_end=False).request(one, tokenizer) for one in given]
    assert [one and (one.num_tokens, one.temperature) for one in found] == [(64, 0.3), (5, 0.5), (64, 0.3), (2, 0.3)]
    assert found[1] == LoadRequest("w", "x", 0.5, 5, "p")
    assert [one and one.schema for one in found] == ["", "", "", '{"enum": ["one", "two"]}']
    ending = [ALL_OF_THEM.request(one, tokenizer) for one in given]
    assert [one and (one.num_tokens, one.may_end) for one in ending] == [(64, True), (5, True), (500, True), (2, True)]


def test_what_does_not_fit_the_context_is_counted_and_said(tmp_path: Path) -> None:
    path = rows(tmp_path / "p.jsonl", {"prompt": "x " * 3000}, {"prompt": "x"}, {"prompt": "x", "max_tokens": 2048})
    texts, [record] = sent([path])
    assert texts == ["x"]
    assert record == {
        "file": "p.jsonl", "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "prompts": 3, "sent": 1,
        "too_long": 2, "without_question": 0, "categories": ["all"],
    }  # fmt: skip
    [note] = file_notes([record], 2048)
    assert note == (
        f"p.jsonl (SHA-256 {record['sha256']}): 3 prompts, 1 sent. 2 left out: with their output they "
        "exceed the context of 2048 tokens."
    )
    with pytest.raises(UserError, match=r"p\.jsonl: no prompt of all fits the model's context of 60 tokens with its"):
        sent([path], replace(ALL_OF_THEM, context=60))


def test_a_conversation_must_fit_with_all_its_answers(tmp_path: Path) -> None:
    path = rows(tmp_path / "p.jsonl", {"turns": ["x", "y"], "category": "writing"})
    tokens = len(load_tokenizer(TARGET)("# x\n- # y\n").input_ids)
    [request], _ = given_requests([path], (), TARGET, replace(ALL_OF_THEM, context=tokens + 2 * 64 + 8))
    assert (request.kind, request.chat, request.turns) == ("writing", (("user", "x"),), ("y",))
    with pytest.raises(UserError, match="no prompt of writing fits"):
        given_requests([path], (), TARGET, replace(ALL_OF_THEM, context=2 * 64))


@pytest.mark.parametrize(("limit", "expected"), [(None, 2048), (-1, 2048), (100, 100), (9999, 2048)])
def test_the_context_is_the_models_or_the_engines(limit: int | None, expected: int) -> None:
    assert context_of(TARGET, limit) == expected


def test_some_of_each_category_are_drawn_by_a_seed_in_the_order_of_the_file(tmp_path: Path) -> None:
    values = [{"prompt": f"{kind}{number}", "category": kind} for number in range(9) for kind in ("qa", "math")]
    path = rows(tmp_path / "p.jsonl", *values, {"prompt": "z", "category": "one"})
    other = rows(tmp_path / "q.jsonl", {"prompt": "more", "category": "one"})
    drawn = {seed: sent([path, other], replace(ALL_OF_THEM, per_category=2, seed=seed)) for seed in range(4)}
    for texts, records in drawn.values():
        assert [sum(text.startswith(kind) for text in texts) for kind in ("qa", "math")] == [2, 2]
        assert texts == sorted(texts, key=[*(value["prompt"] for value in values), "z", "more"].index)
        # A category has as many in all files together.
        assert texts[-2:] == ["z", "more"]
        assert [record["sent"] for record in records] == [5, 1]
    assert sent([path, other], replace(ALL_OF_THEM, per_category=2, seed=3)) == drawn[3]
    assert len({tuple(texts) for texts, _ in drawn.values()}) == 4
    assert sent([path, other], replace(ALL_OF_THEM, per_category=1))[0][-1] == "z"


def test_a_prompt_that_does_not_fit_is_replaced_by_another_one(tmp_path: Path) -> None:
    path = rows(tmp_path / "p.jsonl", *({"prompt": "x " * 3000} for _ in range(5)), {"prompt": "x"})
    texts, [record] = sent([path], replace(ALL_OF_THEM, per_category=1))
    assert (texts, record["sent"]) == (["x"], 1)


def test_named_categories_are_sent_and_others_refused(tmp_path: Path) -> None:
    path = rows(tmp_path / "p.jsonl", {"prompt": "a", "category": "qa"}, {"prompt": "b", "category": "math"})
    assert sent([path], workload=["math"])[0] == ["b"]
    # A built-in workload has the texts of all that fit.
    long = rows(tmp_path / "long.jsonl", {"prompt": "x " * 3000, "category": "rag"})
    assert sent([path, long], workload=["math", "easy"])[0] == ["a", "b"]
    with pytest.raises(UserError, match="no prompt of rag fits"):
        sent([path, long], workload=["math", "rag"])
    with pytest.raises(UserError) as error:
        sent([path], workload=["poetry"])
    assert str(error.value).startswith("--workload: got 'poetry'; allowed: easy, hard, ")
    assert str(error.value).endswith(f"json, qa, math; it is no category of {path}: give one of these")


def test_rounds_go_through_the_requests_of_a_file_and_the_warm_up_takes_the_last_ones() -> None:
    def texts(number: int, tokens: int, is_warm_up: bool = False) -> str:
        requests = [LoadRequest("own", text, 0.0, tokens) for text in "abcde"]
        (phase,) = given_job(requests, 2, number, SIZES, 7, is_warm_up=is_warm_up).phases
        assert is_warm_up or phase.num_tokens == 300
        return "".join(request.prompt for request in phase.requests)

    assert (texts(0, 200), texts(1, 200), texts(0, 200, is_warm_up=True)) == ("abcde", "cdeab", "deabc")
    # A round of 300 tokens reaches four requests of 75.
    assert [texts(number, 75) for number in range(3)] == ["abcde", "eabcd", "deabc"]


def test_a_run_reaches_the_last_turn_of_a_conversation() -> None:
    requests = [LoadRequest("own", "a", 0.0, 80), LoadRequest("own", "b", 0.0, 80, turns=("c", "d"))]
    assert given_job(requests, 4, 0, SIZES, 7, is_warm_up=False).phases[0].num_tokens == 4 * 3 * 80
    assert given_job(requests, 4, 0, SIZES, 7, is_warm_up=True).phases[0].num_tokens == 64
