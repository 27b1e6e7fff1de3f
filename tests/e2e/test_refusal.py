"""A refusal at start-up: one message, an exit status, and no traceback."""

import subprocess
from pathlib import Path

import pytest

from tests.engine.drafts import edited_draft, plugin_yaml
from vllm_spec_plugin.models import model_path
from vllm_spec_tools.engines.serving import serve_command, serving_environment

pytestmark = pytest.mark.e2e


def refused(plugin: str | Path, *options: str, **environment: str) -> list[str]:
    """The lines that `vllm serve` prints; it must end with status 2, without a traceback."""
    target = model_path("target")
    command = serve_command(target, plugin, 1, options)
    variables = serving_environment(target) | environment
    run = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300, check=False)
    output = run.stdout + run.stderr
    assert run.returncode == 2, output[-3000:]
    assert "Traceback" not in output
    return output.splitlines()


def test_a_draft_of_another_vocabulary_is_refused_in_one_message(tmp_path: Path) -> None:
    edited_draft(tmp_path, vocab_size=1000)
    plugin = plugin_yaml(tmp_path)
    [line] = [line for line in refused(plugin) if "1,000" in line and "2,048" in line]
    assert plugin in line
    assert "proposer.model" in line
