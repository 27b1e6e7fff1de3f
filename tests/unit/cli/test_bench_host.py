"""`vllm-spec bench host`: its options, and where its errors go; tests/engine measures."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.cli.running import assert_mistake, run
from tests.unit.tools.bench.host.cases import results
from vllm_spec_plugin.tools.bench import running
from vllm_spec_plugin.tools.bench.host import comparison
from vllm_spec_plugin.tools.bench.host.comparison import HostResults


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arm", "plugin"], "--arm: got 'plugin', which is no file either"),
        (["--levels", "0"], "--levels: got '0'; allowed: whole numbers from 1 to 1024"),
        (["--forward", "real"], "--forward: got 'real'; allowed: constant, computed"),
        (["--target", "./nothing"], "--target ./nothing: no such folder"),
        (["--png", "nothing/here.png"], "--png nothing/here.png: there is no folder"),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("bench", "host", *arguments)
    assert_mistake(result, message)


def test_options_come_to_engines_jobs_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = SimpleNamespace()

    @contextlib.contextmanager
    def no_engines(arms: dict[str, Any], *rest: Any, **options: Any) -> Iterator[dict[str, Any]]:
        asked.options = options
        yield {name: SimpleNamespace(facts=dict) for name in arms}

    def measured(arms: Any, engines: Any, cells: Any, job: Any, rounds: int, *rest: Any) -> HostResults:
        asked.arms, asked.cells, asked.job, asked.rounds = list(arms), cells, job, rounds
        return results()

    monkeypatch.setattr(running, "running_engines", no_engines)
    monkeypatch.setattr(comparison, "run_all", measured)
    files = [f"--{name}={tmp_path / f'host.{name}'}" for name in ("json", "markdown", "png")]
    options = "--arm ngram:4 --levels 1,512 --forward constant --rounds 2 --steps 7 --optimal-tokens 8"
    result = run("bench", "host", *options.split(), *files)
    assert result.exit_code == 0, result.stderr
    assert asked.arms == ["no speculation", "ngram, K = 4"]
    assert asked.cells == [(False, 1), (False, 512)]
    assert (asked.rounds, asked.job.num_steps) == (2, 7)
    # All requests may verify 8 tokens each.
    assert asked.options == {"max_num_seqs": 512, "max_num_batched_tokens": 5120}
    assert "Host time per step by requests" in result.stdout
    assert "](host.png)" in (tmp_path / "host.markdown").read_text()
    found = json.loads((tmp_path / "host.json").read_text())
    assert found["provenance"]["rounds"] == 2
    assert list(found["provenance"]["arms"]) == ["no speculation", "ngram, K = 4"]
