"""`vllm-spec bench --recommend` and its former name `plan`; tests/engine measures."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.cli.running import assert_mistake, run
from tests.unit.cli.test_bench import no_engines
from tests.unit.tools.planner.cases import ModelledEngines, expensive, recommender
from vllm_spec_plugin.config import load_config
from vllm_spec_plugin.models import model_path
from vllm_spec_tools.planner import planning

TARGET, DRAFT, HEADS, HEAD = (str(model_path(name)) for name in ("target", "draft", "medusa", "eagle3"))
COMMAND = ("bench", "--recommend", "--model", TARGET)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A recommendation over modelled engines, and what it was asked for."""
    found = no_engines(monkeypatch)
    found.modelled = ModelledEngines()

    original = planning.Recommender.run

    def recommend(wanted: planning.Recommender, engines: Any, *rest: Any) -> Any:
        found.groups, found.requests, found.levels, found.rounds = (
            wanted.groups, wanted.requests, wanted.levels, wanted.rounds,
        )  # fmt: skip
        return original(recommender(wanted.folder), found.modelled, *rest)

    monkeypatch.setattr(planning.Recommender, "run", recommend)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.jsonl").write_text('{"prompt": "x = 1", "workload": "edit"}\n')
    (tmp_path / "q.jsonl").write_text('{"prompt": "x", "schema": {"type": "boolean"}, "prediction": "p"}\n')
    return found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "--recommend: allowed: with --prompts and 3 --rounds at least"),
        ("--prompts p.jsonl --rounds 2", "--recommend: allowed: with --prompts and 3 --rounds at least"),
        ("--prompts p.jsonl --workload easy", "without --workload and --proposer"),
        ("--prompts nothing.jsonl", "--prompts nothing.jsonl: cannot be read"),
        ("--prompts p.jsonl --draft ./nothing", "--draft ./nothing: no such folder"),
        ("--prompts p.jsonl --draft .", "--draft .: the folder has no config.json; allowed:"),
        ("--prompts p.jsonl --medusa .", "--medusa .: the folder has no config.json"),
        ("--prompts p.jsonl --eagle3 .", "--eagle3 .: the folder has no config.json"),
        ("--prompts p.jsonl --arm optimal", "--arm optimal: with --recommend; allowed: vllm:JSON"),
        ("--prompts p.jsonl --levels 1,x", "--levels: got '1,x'; allowed: whole numbers"),
        ("--prompts p.jsonl -- --enable-prefix-caching", "got --enable-prefix-caching; leave it out"),
        ("--prompts p.jsonl --out nothing/p.yaml", "--out nothing/p.yaml: there is no folder"),
    ],
)
def test_mistakes_are_told_before_anything_starts(asked: SimpleNamespace, arguments: str, message: str) -> None:
    assert_mistake(run(*COMMAND, *arguments.split()), message)
    assert not hasattr(asked, "groups")


def test_options_come_to_candidates_and_everything_is_written(tmp_path: Path, asked: SimpleNamespace) -> None:
    (tmp_path / "docs").mkdir()
    models = ["--draft", DRAFT, "--medusa", HEADS, "--eagle3", HEAD, "--arm", 'vllm:{"method": "ngram"}']
    files = ["--out", "plugin.yaml", "--json", "p.json", "--markdown", "docs/p.md", "--png", "docs/p.png"]
    options = ["--levels", "8,1,8", "--tokens", "6", "--prompt-temperature", "0.5", "--one-at-a-time", "--rounds", "3"]
    prompts = ["--prompts", "p.jsonl", "--prompts", "q.jsonl"]
    result = run(*COMMAND, *prompts, *models, *files, *options, "--", "--max-model-len", "1k")
    assert result.exit_code == 0, result.output
    assert asked.options == {"max_model_len": 1000, "enable_prefix_caching": False}
    assert (asked.levels, asked.rounds, asked.one_at_a_time) == ([1, 8], 3, True)
    names = [engine.name for engine, _ in asked.groups]
    assert names == [
        "prediction, suffix and draft_model", "grammar and suffix", "eagle3", "vllm ngram", "medusa", "medusa tree",
    ]  # fmt: skip
    assert all(arms[engine.candidates[0].arm(1)].spec_tokens == 1 for engine, arms in asked.groups[:-1])
    assert [(one.prompt, one.kind, one.temperature, one.schema) for one in asked.requests] == [
        ("x = 1", "edit", 0.5, ""),
        ("x", "q", 0.5, '{"type": "boolean"}'),
    ]
    assert "Switch it on: cascade" in result.stdout
    assert load_config(tmp_path / "plugin.yaml").proposer.method == "cascade"
    assert "plugin.yaml is written: vllm serve" in result.stdout
    assert json.loads((tmp_path / "p.json").read_text())["recommendation"]["is_on"]
    assert "](p.png)" in (tmp_path / "docs" / "p.md").read_text()
    assert (tmp_path / "docs" / "p.png").stat().st_size > 1000


def test_off_writes_no_file_unless_asked(tmp_path: Path, asked: SimpleNamespace) -> None:
    command = (*COMMAND, "--prompts", "p.jsonl", "--rounds", "3", "--out", "plugin.yaml")
    asked.modelled = ModelledEngines(ratios={1: 1.0, 8: 1.0})
    result = run(*command)
    assert result.exit_code == 0
    assert "Leave it off" in result.stdout
    assert "plugin.yaml is not written" in result.stdout
    assert not (tmp_path / "plugin.yaml").exists()
    run(*command, "--out-anyway")
    assert load_config(tmp_path / "plugin.yaml").draft_length.tokens == 4
    (tmp_path / "plugin.yaml").unlink()
    # Where nothing would draft there is no file at all.
    asked.modelled = ModelledEngines(verify=expensive)
    assert "nothing that was considered would draft" in run(*command, "--out-anyway").stdout
    assert not (tmp_path / "plugin.yaml").exists()


def test_plan_is_the_former_name_with_its_own_options(asked: SimpleNamespace) -> None:
    options = "--concurrency 2 --output-tokens 16 --temperature 0.7 --rounds 3 --tokens 2 --enforce-eager"
    result = run("plan", "--model", TARGET, "--prompts", "p.jsonl", *options.split(), "--vllm", '{"method": "ngram"}')
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("note: vllm-spec plan is now vllm-spec bench --recommend")
    assert (asked.levels, asked.rounds) == ([2], 3)
    [request] = asked.requests
    assert (request.num_tokens, request.temperature) == (16, 0.7)
    assert [engine.name for engine, _ in asked.groups] == ["suffix", "vllm ngram"]
    assert {engine.tokens for engine, _ in asked.groups} == {2}
