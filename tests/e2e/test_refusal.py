"""A refusal at start-up: one message, an exit status, and no traceback."""

import subprocess
from pathlib import Path

import pytest

from tests.engine.drafts import edited_draft, plugin_yaml
from vllm_spec_plugin.tools.demo import model_path
from vllm_spec_plugin.tools.serving import serve_command, serving_environment

pytestmark = pytest.mark.e2e


def test_a_draft_of_another_vocabulary_is_refused_in_one_message(tmp_path: Path) -> None:
    edited_draft(tmp_path, vocab_size=1000)
    target, plugin = model_path("target"), plugin_yaml(tmp_path)
    command, environment = serve_command(target, plugin, 1), serving_environment(target)
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    output = run.stdout + run.stderr
    assert run.returncode == 2, output[-3000:]
    assert "Traceback" not in output
    [line] = [line for line in output.splitlines() if "1,000" in line and "2,048" in line]
    assert plugin in line
    assert "proposer.model" in line
