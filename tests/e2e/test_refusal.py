"""Refusals at start-up: one message, an exit status, and no traceback."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.engine.drafts import edited_draft, plugin_yaml
from tests.engine.tiny import tiny_model
from vllm_spec_plugin.tools.demo import model_path
from vllm_spec_plugin.tools.serving import serve_command, serving_environment

pytestmark = pytest.mark.e2e
TARGET = model_path("target")


def refusal(model: Path, plugin: str, *options: str, said: Sequence[str]) -> str:
    """The one line of `vllm serve` that has all of `said`."""
    command = [*serve_command(model, plugin, 1), *options]
    run = subprocess.run(
        command, env=serving_environment(model), capture_output=True, text=True, timeout=300, check=False
    )
    output = run.stdout + run.stderr
    assert run.returncode == 2, output[-3000:]
    assert "Traceback" not in output
    [line] = [line for line in output.splitlines() if all(word in line for word in said)]
    assert plugin in line
    return line


def test_a_draft_of_another_vocabulary_is_refused_in_one_message(tmp_path: Path) -> None:
    edited_draft(tmp_path, vocab_size=1000)
    assert "proposer.model" in refusal(TARGET, plugin_yaml(tmp_path), said=["1,000", "2,048"])


def test_a_target_with_recurrent_state_is_refused_in_one_message(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.yaml"
    plugin.write_text("proposer: {method: ngram}\n")
    model = tiny_model("granite_moe_hybrid", tmp_path)
    line = refusal(model, str(plugin), "--skip-tokenizer-init", said=["cannot be served here: --model: got"])
    assert "GraniteMoeHybridForCausalLM" in line
    assert "recurrent state" in line
