"""`vllm-spec bench`: its options, and where its errors go; tests/engine measures."""

import contextlib
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.cli.running import assert_mistake, run
from tests.unit.tools.bench.load.cases import results
from vllm_spec_tools.bench import arms as running
from vllm_spec_tools.bench.load import sweep
from vllm_spec_tools.bench.load.sweep import Agreement, SweepPlan, SweepResults


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
        arms: dict[str, Any], engines: Any, plan: SweepPlan, *rest: Any, one_at_a_time: bool
    ) -> SweepResults:
        asked.arms, asked.plan = list(arms), plan
        assert asked.one_at_a_time == one_at_a_time
        return asked.found

    monkeypatch.setattr(sweep, "run_sweep", run_nothing)
    return asked


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
    (tmp_path / "wrong.yaml").write_text("proposer: {method: nothing}\n")
    assert_mistake(run("bench", *shlex.split(arguments)), message)
