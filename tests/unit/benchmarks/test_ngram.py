"""`python -m benchmarks ngram`: a report with a row per arm and workload."""

import json
from pathlib import Path

import pytest

from benchmarks import ngram
from tests.unit.benchmarks.running import run


def test_reports_times_and_gains_by_arm_and_workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ngram, "_FILES", 3)
    path = tmp_path / "ngram.json"
    sizes = ("--context", "100", "--output-tokens", "50", "--shared-tokens", "1024")
    result = run("ngram", *sizes, "--json", path)
    assert result.exit_code == 0, result.output
    medians = json.loads(path.read_text())["medians"]
    found = {(row["arm"], row["workload"], row["metric"]): row["median"] for row in medians}
    arms = list(ngram.proposers(2, 0.0, 1024))
    assert arms[:2] == ["suffix", "suffix, shared"]
    for workload in ("synthetic", "code", "edit", "agent", "again"):
        for arm in arms:
            assert 0 < found[arm, workload, "step"] <= found[arm, workload, "step p99"]
            assert 0 <= found[arm, workload, "accepted"] <= found[arm, workload, "drafted"]
    assert found["suffix, shared", "again", "accepted"] > 3 * found["suffix", "again", "accepted"]
    # Of 150 tokens: a tree's reserved memory is at most a few times what it holds.
    assert 20 < found["suffix", "synthetic", "bytes per token"] < 500
