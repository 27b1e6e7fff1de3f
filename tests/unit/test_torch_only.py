"""Verification, drawing and their tests need torch, numpy and pytest only, and leave tensors on their device."""

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
NOT_NEEDED = ["vllm", "xformers", "pydantic", "numba", "scipy", "hypothesis", "transformers"]
PROPOSERS = "tests/unit/proposers"
TESTS = [
    "tests/unit/verification",
    "tests/v1/verification",
    f"{PROPOSERS}/test_draft_tokens.py",
    f"{PROPOSERS}/test_siblings.py",
]
# Those that have no tensors on the device run without it; of random cases an eighth shows what is left on the CPU.
RUN = f"""
import sys, pytest
sys.modules.update(dict.fromkeys({NOT_NEEDED}))
from tests import sizes
sizes.examples = lambda default, full: max(default // 8, 1)
class OnDevice:
    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if "device" in item.fixturenames]
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--device", "pretended", *{TESTS}], plugins=[OnDevice()]))
"""


def test_they_pass_with_nothing_else_installed_on_a_device_that_is_not_the_cpu():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=REPOSITORY,
        env=environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    # The sampler's own tests and those of its pipeline need vLLM.
    assert "2 skipped" in done.stdout
    assert int(done.stdout.split(" passed")[0].split()[-1]) > 50
