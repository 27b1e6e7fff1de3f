"""`vllm-spec bench drafting`: its options, and where its errors go; tests/engine measures."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from vllm_spec_plugin.cli import app


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(app, ["bench", "drafting", *map(str, arguments)], env={"COLUMNS": "200"})
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def test_it_is_listed_and_has_its_own_help() -> None:
    assert "drafting" in CliRunner().invoke(app, ["bench", "--help"]).stdout
    result = run("--help")
    assert result.exit_code == 0
    assert "--enforce-eager" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arm", "nothing.yaml"], "nothing.yaml"),
        (["--target", "./nothing"], "--target ./nothing: no such folder"),
        (["--draft", "/nothing"], "--draft /nothing: no such folder"),
        (["--prompts", "nothing.json"], "--prompts nothing.json: cannot be read"),
        (["--batch", "50"], "--batch 50 needs as many prompts, and there are 12"),
        (["--json", "nothing/here.json"], "--json nothing/here.json: there is no folder"),
        (["--temperature", "-1"], "--temperature"),
        (["--rounds", "0"], "--rounds"),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert result.stdout == ""
