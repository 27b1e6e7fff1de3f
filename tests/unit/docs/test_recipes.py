"""The commands of recipes/README.md: they parse, and their engines fit on the cards that it names."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.running import run
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.schema.errors import UserError

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "recipes" / "README.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if " 80 GB |" in line]
COMMANDS = [line for line in PAGE.splitlines() if re.match("vllm-spec (certify|plan|bench) ", line)]


def test_each_recipe_is_valid_listed_and_marked_as_not_run() -> None:
    files = [*(ROOT / "recipes").glob("*.yaml")]
    assert {re.findall(r"\((.*)\)", row[1])[0] for row in ROWS} == {path.name for path in files}
    for path in files:
        assert run("check", path).exit_code == 0
        assert "NOT RUN by this project" in path.read_text()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[1])
def test_commands_parse(command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from vllm_spec_tools.bench import arms as running
    from vllm_spec_tools.certify import session

    def stop(*values: Any, **named: Any) -> Any:
        raise UserError("it would start")

    for module, name in ((running, "running_engines"), (session, "certify")):
        monkeypatch.setattr(module, name, stop)
    (tmp_path / "p.jsonl").write_text('"text"\n')
    words = {
        "TARGET": str(model_path("target")),
        "FILE": str(ROOT / "configs" / "suffix.yaml"),
        "OPTIONS": "--max-model-len 512",
        "prompts.jsonl": str(tmp_path / "p.jsonl"),
    }
    for word, value in words.items():
        command = command.replace(word, value)
    result = run(*shlex.split(command, comments=True)[1:])
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, "error: it would start")
