"""`vllm-spec bench` refuses bad options in one line, before anything starts."""

import shlex
from pathlib import Path

import pytest

from tests.unit.cli.running import assert_mistake, run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--arm nothing.yaml", "--arm: got 'nothing.yaml', which is no file either; allowed: none, optimal,"),
        ("--arm wrong.yaml", "wrong.yaml: proposer.method:"),
        ("--proposer nothing.yaml", "nothing.yaml"),
        ("--target ./nothing", "--target ./nothing: no such folder"),
        ("--draft ./nothing", "--draft ./nothing: no such folder"),
        ("--prompts nothing.json", "--prompts nothing.json: cannot be read"),
        ("--png nothing/here.png", "--png nothing/here.png: there is no folder"),
        ("--json folder", "--json folder: is a folder; allowed: a file's name"),
        ("--levels 1,x", "--levels: got '1,x'; allowed: whole numbers from 1 to 1024"),
        ("--workload odd", "--workload: got 'odd'; allowed: easy, hard, mixed, switching"),
        ("--workload equal", "--workload equal: each first pass needs a new process; allowed: with --one-at-a-time"),
        ("--arm 'stock:{'", "--arm stock:{: is no JSON: "),
        ("-- --frob 1", "options after --: unrecognized arguments: --frob 1; allowed after --: engine options of vllm"),
        ("-- --dtype float12", "options after --: argument --dtype: invalid choice: 'float12'"),
        ("-- --model x", "options after --: got --model; use --target"),
        ("-- --speculative-config {}", "options after --: got --speculative-config; use --arm"),
        (
            "--enforce-eager -- --no-enforce-eager",
            "got --no-enforce-eager beside --enforce-eager; allowed: one of them",
        ),
        ("-- stray", "options after --: unrecognized arguments: stray"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "wrong.yaml").write_text("proposer: {method: nothing}\n")
    assert_mistake(run("bench", *shlex.split(arguments)), message)
