"""`vllm-spec bench load`: its options, and where its errors go; tests/engine measures."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.unit.bench.load.cases import results
from vllm_spec_plugin.bench.load.sweep import Plan
from vllm_spec_plugin.cli import app


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(app, ["bench", "load", *map(str, arguments)], env={"COLUMNS": "200"})
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def test_it_is_listed_and_has_its_own_help() -> None:
    assert "load" in CliRunner().invoke(app, ["bench", "--help"]).stdout
    result = run("--help")
    assert result.exit_code == 0
    assert "--switching-levels" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "nothing.yaml"], "nothing.yaml"),
        (["--proposer", "nothing.yaml"], "nothing.yaml"),
        (["--target", "./nothing"], "--target ./nothing: no such folder"),
        (["--prompts", "nothing.json"], "--prompts nothing.json: cannot be read"),
        (["--png", "nothing/here.png"], "--png nothing/here.png: there is no folder"),
        (["--markdown", "nothing/here.md"], "--markdown nothing/here.md: there is no folder"),
        (["--levels", "1,x"], "--levels: got '1,x'; allowed: whole numbers from 1 to 1024"),
        (["--levels", "0"], "--levels: got '0'"),
        (["--fixed", ""], "--fixed: got ''"),
        (["--fixed", "65"], "allowed: whole numbers from 0 to 64"),
        (["--workload", "odd"], "--workload: got 'odd'; allowed: easy, hard, mixed, switching"),
        (["--stock", "medusa"], "--stock: got 'medusa'; allowed: draft_model, ngram"),
        (["--phase-tokens", "20"], "--phase-tokens"),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert result.stdout == ""


def test_options_come_to_cells_and_arms_and_everything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def measured(arms: Any, plan: Plan, *rest: Any) -> Any:
        seen.update(arms=list(arms), cells=plan.cells, sizes=plan.sizes)
        return results(), {name: {} for name in arms}

    monkeypatch.setattr(import_module("vllm_spec_plugin.cli.bench_load"), "_measure", measured)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    options = "--workload mixed --workload switching --levels 2,1,2 --switching-levels 4 --fixed none --stock ngram"
    result = run(*options.split(), "--json", "a.json", "--markdown", "docs/a.md", "--png", "docs/a.png")
    assert result.exit_code == 0, result.output
    assert seen["cells"] == (("mixed", 2), ("mixed", 1), ("switching", 4))
    assert seen["arms"] == ["none", "optimal", "stock ngram"]
    assert "Load: easy" in result.stdout
    origin = json.loads((tmp_path / "a.json").read_text())["provenance"]
    assert origin["sizes"]["phase_tokens"] == 400
    assert list(origin["arms"]) == seen["arms"]
    assert (tmp_path / "docs" / "a.png").stat().st_size > 1000
    assert "](a.png)" in (tmp_path / "docs" / "a.md").read_text()
