"""The README's Python example runs as a script, as users copy it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_spec_tools.serving import cpu_environment

# Engine tests give vLLM the same arguments.
pytestmark = [pytest.mark.e2e, pytest.mark.full]
ROOT = Path(__file__).parents[2]


def test_the_python_example_prints_text(tmp_path):
    (example,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
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
