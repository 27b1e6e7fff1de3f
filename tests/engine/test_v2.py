"""vLLM's own drafters on its V2 runner; docs/v2.md has all of them on each version, from larger samples."""

import json
import os
import subprocess
import sys

import pytest
from scipy.stats import binomtest

from tests.engine.arms import ENVIRONMENT, REPOSITORY, Arms
from tests.engine.exact import Reference
from tests.engine.v2 import runner_environment
from tests.engine.v2.cells import FURTHER, SETTINGS, run_greedy, run_sampled, run_seeded
from tests.engine.v2.drafters import DRAFTERS, Target, bundled_target, engine, mtp_target
from tests.sizes import is_full
from vllm_spec_plugin.compat.version import VERSION

# vLLM's code alone, which changes with its version: test_native.py has the plugin's.
pytestmark = [pytest.mark.engine, pytest.mark.statistical, pytest.mark.full]

FALSE_ALARMS = 1e-3
GREEDY = ("draft_model", "eagle3", "mtp", "ngram_gpu") if is_full() else ("mtp",)
# Of drafts that any token may be; `make v2` has all.
SAMPLED = tuple(DRAFTERS) if is_full() else ("mtp_probabilistic",)
ROUNDS = 2 if is_full() else 1
NUM_TESTS = len(SETTINGS) * len(DRAFTERS) + sum(map(len, FURTHER.values()))


@pytest.fixture(scope="module")
def bundled(reference: Reference) -> Target:
    return bundled_target(reference)


@pytest.fixture(scope="module")
def mtp(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return mtp_target(tmp_path_factory.mktemp("models"))


@pytest.fixture
def target(request: pytest.FixtureRequest, name: str) -> Target:
    found: Target = request.getfixturevalue("mtp" if name.startswith("mtp") else "bundled")
    return found


@pytest.mark.parametrize("name", GREEDY)
def test_greedy_output_is_that_without_speculation(name: str, target: Target, arms: Arms) -> None:
    result = run_greedy(arms, engine(name, target), target)
    assert min(result.accepted, result.rejected) > 50


@pytest.mark.parametrize("name", SAMPLED)
def test_sampled_output_has_the_exact_distribution(name: str, target: Target, arms: Arms) -> None:
    """Seed 0. 3 settings, 8 prompts, 24 tokens; full: 4 times as many, and top-k, top-p and min-p.

    False-alarm rate with all drafters together: 1e-3.
    """
    settings = SETTINGS | (FURTHER.get(name, {}) if is_full() else {})
    result, tests = run_sampled(arms, engine(name, target), target, settings, ROUNDS)
    assert name == "none" or min(result.accepted, result.rejected) > 50
    for setting, test in tests.items():
        print(f"{setting}: p-value {test.p_value:.2g}")
    assert min(test.p_value for test in tests.values()) > FALSE_ALARMS / NUM_TESTS


@pytest.mark.parametrize("name", ["draft_model"])
def test_seeded_output_does_not_depend_on_its_company(name: str, target: Target, arms: Arms) -> None:
    _, test = run_seeded(arms, engine(name, target), target)
    assert test.p_value > FALSE_ALARMS


def test_sabotaged_sampler_is_noticed(bundled: Target, arms: Arms) -> None:
    """At temperature 1 its p-value is below 1e-6, that of a sound sampler is not.

    Seed 0. 8 prompts, 3 outputs of 24 tokens each. False-alarm rate of the sound run: 1e-3 / 33.
    """
    settings = {"temperature 1": SETTINGS["temperature 1"]}
    drafting = engine("draft_model", bundled)
    found = {
        sabotage: run_sampled(arms, drafting, bundled, settings, 3, sabotage)[1]["temperature 1"].p_value
        for sabotage in ("", "keep_some_rejected")
    }
    print(found)
    assert found["keep_some_rejected"] < 1e-6 < FALSE_ALARMS / NUM_TESTS < found[""]


def test_block_verification_of_0_32_tests_a_position_again_by_the_same_random_number() -> None:
    """Two-sided, seed 0, 400 requests; false-alarm rate on 0.33: 1e-3."""
    command = [sys.executable, "-m", "tests.engine.v2.noise"]
    environment = runner_environment("v2", {**os.environ, **ENVIRONMENT})
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    test = binomtest(found["token 0"], found["after a rejection"], 0.5)
    assert (test.pvalue < FALSE_ALARMS) == (VERSION < (0, 33)), found
