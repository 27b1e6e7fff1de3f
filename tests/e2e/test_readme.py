"""The README's examples, as users copy them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_spec_tools.engines.serving import Server, cpu_environment
from vllm_spec_tools.fetching import cached

# Engine tests give vLLM the same arguments.
pytestmark = [pytest.mark.e2e, pytest.mark.full]
ROOT = Path(__file__).parents[2]


PAGE = (ROOT / "README.md").read_text()


CLIENT, OFFLINE = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
# The request is for it: the bundled target's steps are too fast, and its text too new, for most drafts to pay.
MODEL = cached("smollm2")


@pytest.mark.skipif(not MODEL.exists(), reason="needs: vllm-spec fetch smollm2")
def test_most_tokens_of_the_first_request_are_accepted_drafts(tmp_path):
    script = tmp_path / "client.py"
    with Server(MODEL, str(ROOT / "configs/suffix.yaml"), extra_args=("--enforce-eager",)) as server:
        script.write_text(CLIENT.replace("http://localhost:8000", server.base_url))
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
        accepted = server.metrics()["vllm:spec_decode_num_accepted_tokens_total"]
    assert done.returncode == 0, done.stderr[-3000:]
    with_drafts, without = done.stdout.splitlines()
    assert (with_drafts[-2:], without.split("tokens ")[1]) == ("{}", "{'vllm_xargs': {'spec': 'off'}}")
    assert with_drafts.split()[3] == without.split()[3]
    assert accepted > 0.5 * int(with_drafts.split()[3])


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
