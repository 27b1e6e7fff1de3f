"""Verification, drawing and their tests need torch, numpy and pytest only, and leave tensors on their device."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.pretended_gpu import pretended, waits

REPOSITORY = Path(__file__).parents[2]
NOT_NEEDED = ["vllm", "xformers", "pydantic", "numba", "scipy", "hypothesis", "transformers"]
PROPOSERS = "tests/unit/proposers"
TESTS = [
    "tests/unit/verification",
    "tests/v1/verification",
    f"{PROPOSERS}/test_draft_tokens.py",
    f"{PROPOSERS}/test_siblings.py",
]
# Those that have no tensors on the device run without it; of random cases a third shows what is left on the CPU.
RUN = f"""
import sys, pytest
sys.modules.update(dict.fromkeys({NOT_NEEDED}))
from tests import sizes
sizes.examples = lambda default, full: max(default // 3, 1)
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
    assert int(done.stdout.split(" passed")[0].split()[-1]) > 70


def test_the_device_refuses_tensors_of_two_devices():
    with pretended() as device:
        here, there = torch.arange(3), torch.tensor([1, 2, 3], device=device)
        assert (there + 1).device == device
        assert there[here == 1].tolist() == [2]
        assert (there.cpu() + here).tolist() == [1, 3, 5]
        assert bool(there.add_(1)[0] == 2)
        for mix in (lambda: here + there, lambda: here[there - 2], lambda: torch.cat([here, there])):
            with pytest.raises(RuntimeError, match="same device"):
                mix()


def test_the_device_tells_what_a_host_waits_for():
    with pretended() as device, waits() as found:
        there = torch.tensor([1, 2, 3], device=device)
        torch.where(there > 1, there * 2, 0).cumsum(0)[torch.tensor([2], device=device)]
        assert found == []
        for wait in (
            lambda: there.cpu(),
            lambda: there.tolist(),
            lambda: bool(there.any()),
            lambda: int(there[0]),
            lambda: there.nonzero(),
            lambda: there[there > 1],
        ):
            wait()
            assert len(found) == 1, found
            found.clear()
