"""The README's examples, as users copy them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from vllm_spec_plugin.models import model_path
from vllm_spec_tools.engines.serving import Server, cpu_environment

# Engine tests give vLLM the same arguments.
pytestmark = [pytest.mark.e2e, pytest.mark.full]
ROOT = Path(__file__).parents[2]


PAGE = (ROOT / "README.md").read_text()


def test_most_tokens_of_the_first_request_are_accepted_drafts():
    (body,) = re.findall(r"^curl .*?-d '(\{.*?\})'$", PAGE, re.MULTILINE | re.DOTALL)
    request = json.loads(body)
    with Server(model_path("target"), str(ROOT / "configs/suffix.yaml")) as server:
        model = httpx.get(f"{server.base_url}/v1/models").json()["data"][0]["id"]
        answer = httpx.post(f"{server.base_url}/v1/completions", json={"model": model, **request}, timeout=300).json()
        metrics = httpx.get(f"{server.base_url}/metrics").text
    (accepted,) = re.findall(r"^vllm:spec_decode_num_accepted_tokens_total\{.*\} (\S+)$", metrics, re.MULTILINE)
    assert float(accepted) > 0.5 * answer["usage"]["completion_tokens"], answer["choices"][0]["text"]


def test_the_python_example_prints_text(tmp_path):
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(example)
    environment = os.environ | cpu_environment()
    done = subprocess.run(
        [sys.executable, script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if "pid=" not in line]
    # The body of the method that the prompt begins.
    assert any(line.startswith("        ") for line in lines), done.stdout[-3000:]
