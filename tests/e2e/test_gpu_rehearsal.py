"""Runs on a CPU, small, what runs on a GPU: tests, padded models and the comparison of arms."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[2]


def run(*words: str | Path) -> str:
    """Runs a module in the repository; returns its output."""
    environment = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def lines_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_tests_of_engines(tmp_path):
    run("pytest", "tests/gpu", "--rehearse", "--results", tmp_path / "results.jsonl", "-q", "-p", "no:cacheprovider")
    found = lines_of(tmp_path / "results.jsonl")
    assert {line["outcome"] for line in found} <= {"passed", "skipped"}
    names = {
        outcome: {line["test"].partition("[")[0] for line in found if line["outcome"] == outcome}
        for outcome in ("passed", "skipped")
    }
    assert names["skipped"] - names["passed"] == {
        "test_both_runners_agree",
        "test_seeded_outputs_are_those_without_speculation",
        "test_bfloat16_outputs_are_equal_but_for_close_logits",
        "test_outputs_are_equal_after_sleep",
    }


@pytest.mark.full  # tests/unit/benchmarks has padded models.
def test_arms_on_padded_models(tmp_path):
    models, out = tmp_path / "models", tmp_path / "results.jsonl"
    run("benchmarks.gpu.padding", models, "--size", "tiny", "--dtype", "float32")
    arms = ("--arm", "none, V2", "--arm", "own draft_model, optimal")
    sizes = ("--levels", "2", "--stream-tokens", "24", "--dtype", "float32", "--workload", "easy")
    shown = run("benchmarks.gpu.run", models, out, *arms, *sizes)
    found = [line for line in lines_of(out) if "figures" in line]
    assert [line["arm"] for line in found] == ["none, V2", "own draft_model, optimal, V1"]
    assert all(line["outputs"]["different"] == 0 < line["outputs"]["equal"] for line in found)
    curves = [line["steps"] for line in lines_of(out) if "steps" in line]
    assert len(curves) == 2
    assert all(cell["requests"] == 2 <= cell["tokens"] and cell["milliseconds"] > 0 for cell in curves[0])
    assert shown.splitlines()[-3].startswith("| none, V2 | 1.00 |")


@pytest.mark.full  # tests/v1/verification verifies the same tensors.
def test_times_of_verification(tmp_path):
    run("benchmarks.gpu.verification", tmp_path / "v.jsonl", "--vocab-sizes", "512", "--batches", "2", "--rounds", "2")
    (line,) = lines_of(tmp_path / "v.jsonl")
    assert set(line["milliseconds"]) == {"token", "block", "tree"}
