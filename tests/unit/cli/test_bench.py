"""`vllm-spec bench`: its options, and where its errors go; tests/engine measures."""

import contextlib
import hashlib
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.cli.running import assert_mistake, run
from tests.unit.tools.bench.load.cases import results, steady
from tests.unit.tools.bench.load.cases import run as one_run
from vllm_spec_plugin.models import model_path
from vllm_spec_tools.bench import arms as running
from vllm_spec_tools.bench.load import sweep
from vllm_spec_tools.bench.load.sweep import Agreement, SweepPlan, SweepResults
from vllm_spec_tools.bench.run_file import RunFile


def no_engines(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Lets commands run without engines; what these were asked for."""
    asked = SimpleNamespace()

    @contextlib.contextmanager
    def running_none(arms: dict[str, Any], *rest: Any, one_at_a_time: bool, **_: Any) -> Iterator[SimpleNamespace]:
        asked.options, asked.one_at_a_time = rest[-1], one_at_a_time
        yield SimpleNamespace(facts={name: {"device": "none"} for name in arms})

    monkeypatch.setattr(running, "running_engines", running_none)
    return asked


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A sweep without engines: what it was asked for, and what it finds."""
    asked = no_engines(monkeypatch)
    asked.found = results()

    def run_nothing(
        arms: dict[str, Any], engines: Any, plan: SweepPlan, *rest: Any, one_at_a_time: bool, file: RunFile | None
    ) -> SweepResults:
        asked.arms, asked.plan, asked.file = list(arms), plan, file
        assert asked.one_at_a_time == one_at_a_time
        return asked.found

    monkeypatch.setattr(sweep, "run_sweep", run_nothing)
    return asked


def test_runs_are_kept_in_a_file_of_this_command(tmp_path: Path, swept: SimpleNamespace) -> None:
    words = ("bench", "--arm", "stock:ngram", "--levels", "1", "--rounds", "3", "--runs", tmp_path / "runs")
    assert run(*words).exit_code == 0
    swept.file.add(one_run("no speculation", [steady(10.0)]))
    assert run(*words).exit_code == 0
    assert len(swept.file.kept) == 1
    refused = run(*words, "--seed", "1")
    assert refused.exit_code == 2
    assert "has runs of a command with other load" in refused.stderr
    refused = run(*words, "--model", model_path("draft"))
    assert (refused.exit_code, "with other model" in refused.stderr) == (2, True)
    refused = run("bench", "--recommend", "--runs", tmp_path / "runs", "--prompts", tmp_path / "none")
    assert (refused.exit_code, "--runs: allowed: without --recommend" in refused.stderr) == (2, True)


def test_structured_outputs_are_built_in_but_no_default_and_a_file_may_have_them(
    tmp_path: Path, swept: SimpleNamespace
) -> None:
    def schemas(*options: str | Path) -> list[Any]:
        assert run("bench", "--arm", "stock:ngram", "--levels", "1", "--rounds", "3", *options).exit_code == 0
        [(workload, level)] = swept.plan.cells
        [phase] = swept.plan.job((workload, level), 0).phases
        return [workload, *(request.schema and json.loads(request.schema) for request in phase.requests)]

    workload, *none = schemas()
    assert (workload, set(none)) == ("easy", {""})
    workload, *built_in = schemas("--workload", "json")
    assert all(schema["type"] == "object" for schema in built_in)
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"prompt": "x", "workload": "json", "schema": {"enum": ["one"]}}))
    assert schemas("--prompts", path) == ["json", {"enum": ["one"]}]


def test_options_come_to_cells_and_arms_and_everything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swept: SimpleNamespace
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    options = "--workload mixed --workload switching --levels 2,1,2 --switching-levels 4"
    arms, files = (
        "--rounds 3 --arm stock:ngram --arm fixed:2",
        "--json a.json --csv a.csv --markdown docs/a.md --png docs/a.png --html a.html",
    )
    result = run("bench", *f"{options} {arms} {files}".split())
    assert result.exit_code == 0, result.output
    assert swept.plan.cells == (("mixed", 2), ("mixed", 1), ("switching", 4))
    assert swept.arms == ["no speculation", "vLLM's ngram, K = 4", "fixed K = 2"]
    assert "easy: tokens/s" in result.stdout
    origin = json.loads((tmp_path / "a.json").read_text())["provenance"]
    assert (origin["sizes"]["phase_tokens"], origin["rounds"], origin["seed"]) == (400, 3, 0)
    assert list(origin["arms"]) == swept.arms
    assert origin["arms"]["fixed K = 2"]["engine"] == {"device": "none"}
    assert (tmp_path / "docs" / "a.png").stat().st_size > 1000
    assert (tmp_path / "a.csv").read_text().startswith("arm,workload,level,round,metric,value\n")
    assert "data:image/png;base64," in (tmp_path / "a.html").read_text()
    assert "](a.png)" in (tmp_path / "docs" / "a.md").read_text()


def test_prompts_of_data_sets_are_categories_and_the_file_is_in_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swept: SimpleNamespace
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [{"turns": ["one", "two"], "category": kind} for kind in ("writing", "qa", "qa", "qa")]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, given)))
    (tmp_path / "q.jsonl").write_text('{"question": "x", "answer": "y"}')
    options = "--rounds 3 --levels 1 --per-category 2 --json a.json"
    result = run("bench", "--prompts", "p.jsonl", "--prompts", "q.jsonl", *options.split())
    assert result.exit_code == 0, result.output
    assert swept.plan.cells == (("writing", 1), ("qa", 1), ("q", 1))
    assert {kind: len(requests) for kind, requests in swept.plan.given.items()} == {"writing": 1, "qa": 2, "q": 1}
    first, second = json.loads((tmp_path / "a.json").read_text())["provenance"]["prompts"]["files"]
    assert (first["file"], first["prompts"], first["sent"]) == ("p.jsonl", 4, 3)
    sha256 = hashlib.sha256((tmp_path / "q.jsonl").read_bytes()).hexdigest()
    assert (second["file"], second["sha256"]) == ("q.jsonl", sha256)
    for text in (result.stderr, result.stdout):
        told = f"p.jsonl (SHA-256 {first['sha256']}): 4 prompts in 2 categories, 3 sent."
        assert told in " ".join(text.split())
    run("bench", "--prompts", "q.jsonl", "--rounds", "3")
    assert {name for name, _ in swept.plan.cells} == {"all"}


def test_options_after_two_dashes_are_the_engines(swept: SimpleNamespace) -> None:
    result = run(
        "bench", "--rounds", "3", "--workload", "equal", "--one-at-a-time", "--", "--dtype=bfloat16", "-tp", "2"
    )
    assert result.exit_code == 0, result.output
    assert swept.options == {"dtype": "bfloat16", "tensor_parallel_size": 2}
    assert swept.one_at_a_time
    assert swept.plan.cells[0] == ("equal", 1)
    assert run("bench", "--rounds", "3").exit_code == 0
    assert (swept.options, swept.one_at_a_time) == ({}, False)


@pytest.mark.parametrize(
    ("wrong", "rounds", "said"),
    [
        (2, 3, "2 greedy outputs differ from those of arm no speculation"),
        (0, 5, "interrupted: these are the first 3 of 5 rounds"),
    ],
)
def test_a_run_with_problems_fails_after_it_has_told_all(
    tmp_path: Path, swept: SimpleNamespace, wrong: int, rounds: int, said: str
) -> None:
    swept.found = results(agreements={("optimal", "easy", 1): Agreement(9, 1, wrong)})
    result = run("bench", "--rounds", str(rounds), "--json", tmp_path / "a.json")
    assert (result.exit_code, result.stderr) == (1, f"error: {said}\n")
    assert "easy: tokens/s" in result.stdout
    assert (tmp_path / "a.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--arm nothing.yaml", "--arm: got 'nothing.yaml', which is no file either; allowed: none, optimal,"),
        ("--arm wrong.yaml", "wrong.yaml: proposer.method:"),
        ("--proposer nothing.yaml", "nothing.yaml"),
        ("--model ./nothing", "--model ./nothing: no such folder"),
        ("--prompts nothing.json", "--prompts nothing.json: cannot be read"),
        ("--png nothing/here.png", "--png nothing/here.png: there is no folder"),
        ("--medusa heads", "--medusa, --eagle3, --tokens, --out, --out-anyway: allowed: with --recommend"),
        ("--levels 1,x", "--levels: got '1,x'; allowed: whole numbers from 1 to 1024"),
        ("--tokens 4", "allowed: with --recommend; numbers of output tokens are --request-tokens and --stream-tokens"),
        ("--target ./nothing", "--model ./nothing: no such folder"),
        ("--per-category 2", "--per-category: allowed: with --prompts"),
        ("--prompts p.jsonl --category odd", "--workload: got 'odd'; allowed: easy, hard, mixed, switching"),
        ("--prompts p.jsonl --category odd", "json, qa; it is no category of p.jsonl: give one of these"),
        ("--prompts p.jsonl -- --max-model-len 64", "no prompt of qa fits the model's context of 64 tokens"),
        ("--workload odd", "--workload: got 'odd'; allowed: easy, hard, mixed, switching"),
        ("--workload equal", "--workload equal: each first pass needs a new process; allowed: with --one-at-a-time"),
        ("-- --frob 1", "options after --: unrecognized arguments: --frob 1; allowed after --: engine options of vllm"),
        ("-- --model x", "options after --: got --model; use --model"),
        ("-- --speculative-config {}", "options after --: got --speculative-config; use --arm"),
        (
            "--enforce-eager -- --no-enforce-eager",
            "got --no-enforce-eager and --enforce-eager; allowed: one of them",
        ),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "p.jsonl").write_text('{"turns": ["x"], "category": "qa"}')
    (tmp_path / "wrong.yaml").write_text("proposer: {method: nothing}\n")
    assert_mistake(run("bench", *shlex.split(arguments)), message)
