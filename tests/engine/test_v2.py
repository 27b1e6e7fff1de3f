"""vLLM's own samplers on its V2 runner; `make v2` tests all of its drafters, and writes docs/v2.md."""

import json
import os
import subprocess
import sys

import pytest
from scipy.stats import binomtest

from tests.engine.arms import ENVIRONMENT, REPOSITORY
from tests.engine.v2 import runner_environment
from vllm_spec_plugin.compat.version import VERSION

# vLLM's code alone, which changes with its version: test_exactness.py has the plugin's.
pytestmark = [pytest.mark.engine, pytest.mark.statistical, pytest.mark.full]

FALSE_ALARMS = 1e-3


def test_block_verification_of_0_32_tests_a_position_again_by_the_same_random_number() -> None:
    """Two-sided, seed 0, 400 requests; false-alarm rate on 0.33: 1e-3."""
    command = [sys.executable, "-m", "tests.engine.v2.noise"]
    environment = runner_environment("v2", {**os.environ, **ENVIRONMENT})
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    test = binomtest(found["token 0"], found["after a rejection"], 0.5)
    assert (test.pvalue < FALSE_ALARMS) == (VERSION < (0, 33)), found
