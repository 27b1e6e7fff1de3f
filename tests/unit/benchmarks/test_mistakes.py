"""`python -m benchmarks` refuses bad options in one line, before anything starts."""

import shlex

import pytest

from tests.unit.benchmarks.running import run
from tests.unit.cli.running import assert_mistake


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("ngram --window 2", "window"),
        ("ngram -- stray", "stray"),
        ("policy --tokens 65", "--tokens"),
        ("verification --device abacus", "--device abacus: allowed: cpu, or cuda where there is a GPU"),
    ],
)
def test_bad_options_are_refused(arguments: str, message: str) -> None:
    assert_mistake(run(*shlex.split(arguments)), message)
