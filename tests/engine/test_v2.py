"""vLLM's own samplers on its V2 runner; `make v2` tests all of its drafters, and writes docs/v2.md."""

import json
import os
import subprocess
import sys

import pytest
from scipy.stats import binomtest

from tests.engine.arms import ENVIRONMENT, REPOSITORY, Arms
from tests.engine.exact import Reference
from tests.engine.v2 import runner_environment
from tests.engine.v2.cells import SETTINGS, run_sampled
from tests.engine.v2.drafters import bundled_target, engine
from vllm_spec_plugin.compat.version import VERSION

# vLLM's code alone, which changes with its version: test_exactness.py has the plugin's.
pytestmark = [pytest.mark.engine, pytest.mark.statistical, pytest.mark.full]

FALSE_ALARMS = 1e-3


def test_sabotaged_sampler_is_noticed(arms: Arms, reference: Reference) -> None:
    """At temperature 1 its p-value is below 1e-6, that of a sound sampler is not.

    Seed 0. 8 prompts, 3 outputs of 24 tokens each. False-alarm rate of the sound run: 1e-3 / 33.
    """
    settings, target = {"temperature 1": SETTINGS["temperature 1"]}, bundled_target(reference)
    drafting = engine("draft_model", target)
    sound, wrong = (
        run_sampled(arms, drafting, target, settings, 3, sabotage)[1]["temperature 1"].p_value
        for sabotage in ("", "keep_some_rejected")
    )
    assert wrong < 1e-6 < FALSE_ALARMS / 33 < sound


def test_block_verification_of_0_32_tests_a_position_again_by_the_same_random_number() -> None:
    """Two-sided, seed 0, 400 requests; false-alarm rate on 0.33: 1e-3."""
    command = [sys.executable, "-m", "tests.engine.v2.noise"]
    environment = runner_environment("v2", {**os.environ, **ENVIRONMENT})
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    test = binomtest(found["token 0"], found["after a rejection"], 0.5)
    assert (test.pvalue < FALSE_ALARMS) == (VERSION < (0, 33)), found
