"""`vllm-spec bench ngram`: it runs, and says what does not go."""

import json
from pathlib import Path

import pytest

from vllm_spec_plugin.cli.bench_ngram import bench_ngram
from vllm_spec_plugin.tools.bench import source_texts

GREEDY, SAMPLED = 5, 2


def test_reports_a_row_per_variant_and_batch_and_one_per_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_texts, "_FILES", 3)
    path = tmp_path / "ngram.json"
    bench_ngram(context=100, steps=5, batch=2, vocab_size=20, shared_tokens=1024, json_file=path)
    medians = json.loads(path.read_text())["medians"]
    assert len([row for row in medians if row["metric"] == "step"]) == 6 * (GREEDY + SAMPLED)
    accepted = {(row["workload"], row["arm"]): row["median"] for row in medians if row["metric"] == "accepted"}
    for workload in ("code", "edit", "agent", "again"):
        assert accepted[workload, "suffix, greedy"] > 0.99 * accepted[workload, "lookup, greedy"]
    assert accepted["again", "suffix + shared, greedy"] > 5 * accepted["again", "suffix, greedy"]
