"""Block verification on V2 by vLLM's kernels on tensors: the law of outputs, and numbers that decide once."""

import functools
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from scipy.stats import binomtest, chisquare

from tests.engine.arms import ENVIRONMENT
from tests.engine.v2 import runner_environment

pytestmark = [pytest.mark.engine, pytest.mark.statistical, pytest.mark.full]

NUM_REQUESTS = 2000


@functools.cache
def counts() -> dict[str, Any]:
    """Runs `tests.engine.v2.block_law` in a process that has Triton."""
    environment = runner_environment("v2", {**os.environ, **ENVIRONMENT})
    command = [sys.executable, "-m", "tests.engine.v2.block_law", str(NUM_REQUESTS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def p_value(seen: list[int]) -> float:
    expected = [share * sum(seen) for share in counts()["expected"]]
    return float(chisquare(seen, expected, sum_check=False).pvalue)


def test_outputs_have_the_targets_distribution() -> None:
    """2,000 outputs of two tokens, seed 0. False-alarm rate 1e-4; w = 0.16 (Cohen's) is found in 99 of 100."""
    assert p_value(counts()["texts"]) > 1e-4


def test_residuals_left_out_are_noticed() -> None:
    """After a rejection the token is sampled from p."""
    assert p_value(counts()["without residual"]) < 1e-6


def test_a_number_that_rejected_a_draft_does_not_decide_again() -> None:
    """About 250 drafts, half of which are right. False-alarm rate 1e-4. By position, as in vLLM, none is accepted."""
    accepted, of = counts()["retested"]
    assert of > NUM_REQUESTS // 12
    assert binomtest(accepted, of, 0.5).pvalue > 1e-4
    accepted, of = counts()["retested by position"]
    assert binomtest(accepted, of, 0.5).pvalue < 1e-6
