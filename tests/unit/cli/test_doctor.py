"""`vllm-spec doctor`."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tests.unit.cli.running import run
from vllm_spec_plugin.models import model_path

CONFIGS = Path(__file__).parents[3] / "configs"


def rows(output: str) -> dict[str, str]:
    split = [line.strip().split("  ", 1) for line in output.splitlines() if line.startswith("  ")]
    return {row[0]: row[1].strip() for row in split if len(row) == 2}


def test_a_sound_installation_has_no_problems():
    result = run("doctor")
    assert (result.exit_code, result.stderr) == (0, ""), result.stdout
    found = rows(result.stdout)
    assert found["seen by vLLM"].startswith("yes")
    assert found["vLLM"].startswith(f"{version('vllm')} (")
    assert found["runner with drafts"].startswith("V1 runner: V2 needs Triton")
    assert found["scheduling with drafts"].startswith("synchronous scheduling: ")


def test_a_runner_that_drafts_cannot_have_is_a_problem(monkeypatch):
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")
    result = run("doctor")
    assert result.exit_code == 2
    found = rows(result.stdout)
    assert found["with drafts"].startswith("VLLM_USE_V2_MODEL_RUNNER=1: ")
    assert "runner with drafts" not in found


def test_a_plugin_that_vllm_does_not_load_is_a_problem(monkeypatch):
    monkeypatch.setenv("VLLM_PLUGINS", "another")
    result = run("doctor")
    assert result.exit_code == 2
    assert "no: VLLM_PLUGINS=another leaves vllm_spec_plugin out" in result.stdout
    monkeypatch.setenv("VLLM_PLUGINS", "another,vllm_spec_plugin")
    monkeypatch.setenv("VLLM_SPEC_PLUGIN", "0")
    result = run("doctor")
    assert result.exit_code == 2
    assert "no: VLLM_SPEC_PLUGIN=0" in result.stdout


def test_it_says_what_is_served_for_a_model_and_whether_the_draft_fits():
    result = run("doctor", "--model", model_path("target"), "--config", CONFIGS / "draft_model.yaml")
    assert result.exit_code == 0, result.stderr
    assert rows(result.stdout)["trees"] == "served"
    assert "draft_model.yaml: valid and fits" in result.stdout
    assert f"  served by vLLM {version('vllm')} (" in result.stdout


def test_it_names_the_rule_that_refuses():
    result = run("doctor", "--model", model_path("target"), "--pipeline-parallel-size", "2")
    assert rows(result.stdout)["own proposers, V1"] == "refused"
    assert rows(result.stdout)["token-only, V2"] == "served"
    assert "--pipeline-parallel-size: got 2; drafts were not tested across pipeline stages" in result.stdout


def test_options_of_a_server_need_a_model():
    result = run("doctor", "--pipeline-parallel-size", "2")
    assert result.exit_code == 2
    assert "with --model only" in result.stderr


def test_it_says_how_back_ends_of_structured_output_draft_and_whether_they_are_installed(monkeypatch):
    def found(package: str) -> str:
        if package == "outlines_core":
            raise PackageNotFoundError
        return version(package)

    monkeypatch.setattr(import_module("vllm_spec_tools.cli.doctor"), "version", found)
    result = run("doctor", "--config", CONFIGS / "grammar.yaml")
    assert result.exit_code == 0, result.stderr
    told = rows(result.stdout)
    installed = {"xgrammar": "xgrammar", "guidance": "llguidance"}
    for name, package in installed.items():
        assert told[name].split("  ")[0] == "drafts from forced texts"
        assert told[name].endswith(f"installed: {version(package)}")
    assert told["outlines"].startswith("drafts from masks")
    assert told["outlines"].endswith("not installed")
    assert told["lm-format-enforcer"].startswith("refused by vLLM with speculation")
    assert "back ends" not in run("doctor", "--config", CONFIGS / "suffix.yaml").stdout
