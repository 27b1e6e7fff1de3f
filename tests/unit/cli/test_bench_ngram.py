"""`vllm-spec bench ngram`: it runs, and says what does not go."""

import pytest
import typer

from vllm_spec_plugin.cli.bench_ngram import bench_ngram


def test_prints_a_row_per_variant_and_batch(capsys: pytest.CaptureFixture[str]) -> None:
    bench_ngram(context=100, steps=5, batch=2, vocab_size=20)
    printed = capsys.readouterr().out
    assert sum(printed.count(f" {word} ") for word in ("greedy", "sample")) == 6
    assert "median" in printed


def test_impossible_options_are_the_users_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        bench_ngram(context=100, steps=1, window=2)
    assert ended.value.exit_code == 2
    assert "window" in capsys.readouterr().err
