"""`vllm-spec plan`: its options, where its errors go, and what it writes; tests/engine measures."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.running import assert_mistake, run
from tests.unit.tools.planner.cases import cheap, expensive, plan
from vllm_spec_plugin.config import load_config
from vllm_spec_plugin.models import model_path
from vllm_spec_tools.planner import planning

MODEL = ("--model", str(model_path("target")))
PROMPT = '{"prompt": "x = 1", "workload": "edit"}\n'


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.jsonl").write_text(PROMPT)


def planned(monkeypatch: pytest.MonkeyPatch, **options: Any) -> dict[str, Any]:
    """Lets the command get a plan made by hand; what it asked for."""
    seen: dict[str, Any] = {}

    def make_plan(wanted: Any, prompts: Any, *rest: Any) -> Any:
        seen.update(wanted=wanted, prompts=prompts)
        return plan(**options)

    monkeypatch.setattr(planning, "make_plan", make_plan)
    return seen


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*MODEL, "--prompts", "nothing.jsonl"], "--prompts nothing.jsonl: cannot be read"),
        (["--model", "./nothing", "--prompts", "p.jsonl"], "--model ./nothing: no such folder"),
        ([*MODEL, "--prompts", "p.jsonl", "--draft", "./nothing"], "--draft ./nothing: no such folder"),
        ([*MODEL, "--prompts", "p.jsonl", "--draft", "."], "--draft .: the folder has no config.json; allowed:"),
        ([*MODEL, "--prompts", "p.jsonl", "--medusa", "."], "--medusa .: the folder has no config.json"),
        ([*MODEL, "--prompts", "p.jsonl", "--eagle3", "."], "--eagle3 .: the folder has no config.json"),
        ([*MODEL, "--prompts", "p.jsonl", "--concurrency", "1,x"], "--concurrency: got '1,x'; allowed: whole numbers"),
        ([*MODEL, "--prompts", "p.jsonl", "--", "--frob"], "options after --: unrecognized arguments: --frob"),
        (
            [*MODEL, "--prompts", "p.jsonl", "--", "--enable-prefix-caching"],
            "got --enable-prefix-caching; leave it out",
        ),
        ([*MODEL, "--prompts", "p.jsonl", "--out", "nothing/p.yaml"], "--out nothing/p.yaml: there is no folder"),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    seen = planned(monkeypatch)
    result = run("plan", *arguments)
    assert_mistake(result, message)
    assert not seen


def test_schemas_of_prompts_are_part_of_the_traffic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = planned(monkeypatch)
    (tmp_path / "p.jsonl").write_text('{"prompt": "x", "schema": {"type": "boolean"}}\n' + PROMPT)
    assert run("plan", *MODEL, "--prompts", "p.jsonl").exit_code == 0
    assert [prompt.schema for prompt in seen["prompts"]] == ['{"type": "boolean"}', ""]


def test_options_come_to_what_is_planned_and_everything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = planned(monkeypatch)
    (tmp_path / "docs").mkdir()
    options = f"--draft {model_path('draft')} --medusa {model_path('medusa')} --concurrency 8,1,8 --tokens 6"
    options += f" --eagle3 {model_path('eagle3')}"
    files = ["--out", "plugin.yaml", "--json", "p.json", "--markdown", "docs/p.md", "--png", "docs/p.png"]
    engine = ["--one-at-a-time", "--", "--max-model-len", "1k"]
    result = run("plan", *MODEL, "--prompts", "p.jsonl", *options.split(), *files, *engine)
    assert result.exit_code == 0, result.output
    wanted = seen["wanted"]
    assert (wanted.sizes.levels, wanted.sizes.one_at_a_time) == ((1, 8), True)
    assert wanted.options == {"max_model_len": 1000}
    assert (wanted.tokens, wanted.sizes.rounds) == (6, 5)
    assert wanted.heads.config.num_heads == 4
    assert wanted.eagle3 == str(model_path("eagle3"))
    assert [(one.prompt, one.kind, one.temperature) for one in seen["prompts"]] == [("x = 1", "edit", 0.0)]
    assert "Switch it on: cascade" in result.stdout
    assert load_config(tmp_path / "plugin.yaml").proposer.method == "cascade"
    assert "plugin.yaml is written: vllm serve" in result.stdout
    assert json.loads((tmp_path / "p.json").read_text())["provenance"]["model"] == MODEL[1]
    assert "](p.png)" in (tmp_path / "docs" / "p.md").read_text()
    assert (tmp_path / "docs" / "p.png").stat().st_size > 1000


def test_off_writes_no_file_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned(monkeypatch, verify=cheap, ratios={1: 1.0, 8: 1.0})
    result = run("plan", *MODEL, "--prompts", "p.jsonl", "--out", "plugin.yaml")
    assert result.exit_code == 0
    assert "Leave it off" in result.stdout
    assert "plugin.yaml is not written" in result.stdout
    assert not (tmp_path / "plugin.yaml").exists()
    run("plan", *MODEL, "--prompts", "p.jsonl", "--out", "plugin.yaml", "--out-anyway")
    assert load_config(tmp_path / "plugin.yaml").draft_length.tokens == 4


def test_where_nothing_would_draft_there_is_no_file_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned(monkeypatch, verify=expensive, ratios={})
    result = run("plan", *MODEL, "--prompts", "p.jsonl", "--out", "plugin.yaml", "--out-anyway")
    assert "nothing that was considered would draft" in result.stdout
    assert not (tmp_path / "plugin.yaml").exists()
