"""`vllm-spec bench drafting`: its options, and where its errors go; tests/engine measures."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.cli.running import assert_mistake, run
from tests.unit.tools.bench.drafting.cases import results
from vllm_spec_plugin.tools.bench import running
from vllm_spec_plugin.tools.bench.drafting import comparison
from vllm_spec_plugin.tools.bench.drafting.comparison import Results, Workload


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arm", "plugin"], "--arm: got 'plugin', which is no file either; allowed: none, optimal,"),
        (["--arm", "fixed:0"], "--arm fixed:0: got '0'; allowed: whole numbers from 1 to 64"),
        (["--target", "./nothing"], "--target ./nothing: no such folder"),
        (["--draft", "/nothing"], "--draft /nothing: no such folder"),
        (["--prompts", "nothing.json"], "--prompts nothing.json: cannot be read"),
        (["--batch", "50"], "--batch 50: needs as many prompts, got 12"),
        (["--json", "nothing/here.json"], "--json nothing/here.json: there is no folder"),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("bench", "drafting", *arguments)
    assert_mistake(result, message)


def test_options_come_to_arms_with_engines_of_their_own_and_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = SimpleNamespace()

    @contextlib.contextmanager
    def no_engines(arms: dict[str, Any], *rest: Any) -> Iterator[dict[str, SimpleNamespace]]:
        yield {name: SimpleNamespace(facts=dict) for name in arms}

    def run_nothing(arms: dict[str, Any], engines: Any, workload: Workload, *rest: Any) -> Results:
        asked.arms, asked.workload = arms, workload
        return results()

    monkeypatch.setattr(running, "running_engines", no_engines)
    monkeypatch.setattr(comparison, "run_all", run_nothing)
    result = run(
        *("bench", "drafting", "--arm", "fixed:2,3", "--batch", "2", "--temperature", "1"),
        *("--json", tmp_path / "a.json", "--rounds", "3"),
    )
    assert result.exit_code == 0, result.output
    assert {name: (arm.plan.num_draft_tokens, arm.spec_tokens) for name, arm in asked.arms.items()} == {
        "no speculation": (0, None),
        "fixed K = 2": (2, None),
        "fixed K = 3": (3, None),
    }
    assert (asked.workload.batches, asked.workload.temperatures) == ((2,), (1.0,))
    assert "Limit of the speedup" in result.stdout
    found = json.loads((tmp_path / "a.json").read_text())
    proposer = found["provenance"]["arms"]["fixed K = 3"]["speculation"]["proposer"]
    assert proposer["draft_sampling"] == "probabilistic"
