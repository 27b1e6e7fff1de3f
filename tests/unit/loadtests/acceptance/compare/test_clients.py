"""What both clients are asked, and what they say."""

import json
from pathlib import Path

import pytest

from loadtests.acceptance.compare.client_process import ClientError
from loadtests.acceptance.compare.figures import Tpot
from loadtests.acceptance.compare.ours import run_ours
from loadtests.acceptance.compare.vllm_bench import tpot_of
from loadtests.acceptance.compare.workload import sharegpt, workload
from vllm_spec_plugin.tools.mock_server.options import MockOptions
from vllm_spec_plugin.tools.mock_server.running import MockServer


def test_prompts_take_turns() -> None:
    assert workload(["a", "b", "c"], 5, 64, 2).prompts == ("a", "b", "c", "a", "b")


def test_vllm_reads_first_turns_as_prompts_and_wants_a_second() -> None:
    entries = json.loads(sharegpt(["def a", "def b"]))
    assert [entry["conversations"][0]["value"] for entry in entries] == ["def a", "def b"]
    assert all(len(entry["conversations"]) >= 2 for entry in entries)


def test_vllms_result_is_read() -> None:
    result = {
        "median_tpot_ms": 5.5,
        "mean_tpot_ms": 6.5,
        "completed": 20,
        "failed": 1,
        "total_output_tokens": 1216,
        "mean_ttft_ms": 99.0,
    }
    assert tpot_of(result) == Tpot(median=5.5, mean=6.5, requests=20, failed=1, tokens=1216)
    with pytest.raises(KeyError):
        tpot_of({"completed": 20})


def test_ours_makes_all_requests_as_many_at_once_as_it_says(tmp_path: Path) -> None:
    """6 requests of 0.24 s, 3 at once."""
    with MockServer(MockOptions(port=0, ttft_ms=50, itl_ms=10)) as mock:
        found = run_ours(workload(["def a", "def b"], 6, 20, 3), mock.base_url, "mock", tmp_path / "ours")
    assert (found.requests, found.failed, found.tokens) == (6, 0, 120)
    # On a busy machine it may be more.
    assert found.median >= 9.5
    assert found.mean >= 9.5


def test_a_client_that_fails_says_how(tmp_path: Path) -> None:
    impossible = workload(["def a"], 1, 20, "several")  # type: ignore[arg-type]
    with pytest.raises(ClientError, match=r"ended with 1 and no result .*; its last line: TypeError"):
        run_ours(impossible, "http://localhost:1", "mock", tmp_path / "ours")
