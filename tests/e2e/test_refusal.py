"""What a user sees who asks for a draft that can't be served."""

import subprocess
from pathlib import Path

import pytest

from tests.engine.drafts import edited_draft, plugin_yaml
from vllm_spec_plugin.demo import model_path
from vllm_spec_plugin.serving import serve_command, serving_environment

pytestmark = pytest.mark.e2e


def test_a_draft_of_another_vocabulary_is_refused_in_one_message(tmp_path: Path) -> None:
    """Before an engine starts, with a status that says so and without a traceback."""
    edited_draft(tmp_path, vocab_size=1000)
    plugin = plugin_yaml(tmp_path)
    command = serve_command(model_path("target"), plugin, 1)
    run = subprocess.run(
        command, env=serving_environment(model_path("target")), capture_output=True, text=True, timeout=300, check=False
    )
    output = run.stdout + run.stderr
    assert run.returncode == 2, output[-3000:]
    assert "Traceback" not in output
    lines = [line for line in output.splitlines() if "1,000" in line and "2,048" in line]
    assert len(lines) == 1
    assert plugin in lines[0]
    assert "proposer.model" in lines[0]
