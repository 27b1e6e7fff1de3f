"""The README's examples, as users copy them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixed_length import fixed_length
from vllm_spec_plugin.models import model_path
from vllm_spec_tools.engines.serving import Server, cpu_environment

# Engine tests give vLLM the same arguments.
pytestmark = [pytest.mark.e2e, pytest.mark.full]
ROOT = Path(__file__).parents[2]


PAGE = (ROOT / "README.md").read_text()


CLIENT, OFFLINE = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
# The bundled target has no chat template.
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


def test_the_first_request_is_answered_with_drafts_and_without(tmp_path):
    """By the bundled target, whose steps are too fast for most drafts to pay: so draft lengths are fixed."""
    script, options = tmp_path / "client.py", ("--chat-template", TEMPLATE)
    with Server(model_path("target"), fixed_length("suffix", 8), extra_args=options) as server:
        script.write_text(CLIENT.replace("http://localhost:8000", server.base_url))
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
        accepted = server.metrics()["vllm:spec_decode_num_accepted_tokens_total"]
    assert done.returncode == 0, done.stderr[-3000:]
    with_drafts, without = done.stdout.splitlines()
    assert (with_drafts[-2:], without.split("tokens ")[1]) == ("{}", "{'vllm_xargs': {'spec': 'off'}}")
    assert with_drafts.split()[3] == without.split()[3]
    assert accepted > 0.3 * int(with_drafts.split()[3])


def test_the_python_example_prints_text(tmp_path):
    script = tmp_path / "example.py"
    script.write_text(OFFLINE)
    environment = os.environ | cpu_environment()
    done = subprocess.run(
        [sys.executable, script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if "pid=" not in line]
    # The body of the method that the prompt begins.
    assert any(line.startswith("        ") for line in lines), done.stdout[-3000:]
