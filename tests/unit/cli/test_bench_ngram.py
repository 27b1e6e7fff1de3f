"""`vllm-spec bench ngram`: it runs, and says what does not go."""

import re

import pytest

from vllm_spec_plugin.cli.bench_ngram import bench_ngram
from vllm_spec_plugin.schema.errors import UserError

MODES = 5, 2  # greedy ones, drawn ones


def test_prints_a_row_per_variant_and_batch_and_one_per_workload(capsys: pytest.CaptureFixture[str]) -> None:
    bench_ngram(context=100, steps=5, batch=2, vocab_size=20, shared_tokens=1024)
    printed = capsys.readouterr().out
    assert tuple(printed.count(f" {word} ") for word in ("greedy", "sample")) == tuple(6 * count for count in MODES)
    accepted = {
        (workload, mode.strip()): float(number)
        for workload, mode, number in re.findall(r"^ (\w+) +(\w[\w+ ]*?) +greedy +([\d.]+)", printed, re.MULTILINE)
        if "." in number
    }
    assert len(accepted) == 4 * MODES[0]
    for workload in ("code", "edit", "agent", "again"):
        assert accepted[workload, "suffix"] >= accepted[workload, "lookup"]
    assert accepted["again", "suffix + shared"] > 5 * accepted["again", "suffix"]


def test_impossible_options_are_the_users_error() -> None:
    with pytest.raises(UserError, match="window"):
        bench_ngram(context=100, steps=1, window=2)
