"""The search for the highest rate."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loadtests.sweep import WITH, WITHOUT, highest_rates, judge
from tests.unit.loadtests.mock import mock

ROOT = Path(__file__).parents[3]
GOALS = {"ttft": 0.5, "tpot": 0.02}


def below(limit: float, tried: list[float]) -> Callable[[str, float], bool]:
    """A server that keeps the goals up to a rate."""

    def attempt(arm: str, rate: float) -> bool:
        tried.append(rate)
        return rate <= limit

    return attempt


@pytest.mark.parametrize("limit", [0.3, 1.0, 13.0, 700.0])
def test_the_search_ends_within_its_precision(limit: float) -> None:
    tried: list[float] = []
    found = highest_rates(["a"], below(limit, tried), 1.0, 1000.0, 0.1)["a"]
    assert found is not None
    assert found <= limit <= found * 1.1
    assert len(tried) <= 16


def test_the_search_stops_at_the_most_and_gives_up_at_the_least() -> None:
    tried: list[float] = []
    assert highest_rates(["a"], below(1e9, tried), 1.0, 20.0, 0.1) == {"a": 20.0}
    assert max(tried) == 20.0
    assert highest_rates(["a"], below(0.0, tried), 1.0, 20.0, 0.1) == {"a": None}
    assert min(tried) == 1 / 64


def report(**more: Any) -> dict[str, Any]:
    total = {"requests": 100, "succeeded": 100, "ttft": {"p95": 0.4}, "tpot": {"p95": 0.01}}
    return {"sent": 100, "given_up": 0, "server": {"acceptance_length": 2.5}, "all": total} | more


def test_a_trial_passes_if_all_goals_are_kept_and_all_requests_answered() -> None:
    trial = judge(10.0, 10.0, report(), GOALS)
    assert (trial.missed, trial.ttft, trial.acceptance_length) == ((), 0.4, 2.5)
    for change, words in (
        ({"ttft": {"p95": 0.6}}, "TTFT p95 600 ms"),
        ({"tpot": {"p95": 0.03}}, "TPOT p95 30.0 ms"),
        ({"succeeded": 98}, "2 requests failed"),
    ):
        assert judge(10.0, 10.0, report(all=report()["all"] | change), GOALS).missed == (words,)
    assert judge(10.0, 10.0, report(given_up=7), GOALS).missed == ("7 requests not answered",)


def test_clients_that_do_not_reach_the_rate_say_nothing_about_the_server() -> None:
    trial = judge(20.0, 10.0, report(), GOALS)
    assert trial.is_short
    assert trial.missed == ("the clients sent 100 requests instead of 200",)
    # Chance alone may miss 200 by 4 standard deviations.
    assert not judge(20.0, 10.0, report(sent=143), GOALS).is_short
    assert judge(20.0, 10.0, report(sent=142), GOALS).is_short


def test_a_sweep_of_the_mock_server_reports_both_arms(tmp_path: Path) -> None:
    pytest.importorskip("psutil")
    written = tmp_path / "sweep.json"
    command = [sys.executable, "-m", "loadtests.sweep", "--ttft-p95", "30", "--tpot-p95", "30", "--seconds", "1"]
    with mock(ttft_ms=5, itl_ms=1) as server:
        options = ["--host", server.base_url, "--first", "40", "--most", "40", "--json", str(written)]
        done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    found = json.loads(written.read_text())
    assert found["conclusion"][0] in " ".join(done.stdout.split())
    assert {arm: of_arm["highest_rate"] for arm, of_arm in found["arms"].items()} == {WITH: 40.0, WITHOUT: 40.0}
    lengths = [found["arms"][arm]["trials"][0]["acceptance_length"] for arm in (WITH, WITHOUT)]
    assert lengths[0] > 1.5
    assert lengths[1] is None
