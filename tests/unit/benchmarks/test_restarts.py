"""`python -m benchmarks restarts`: which starts know something, and what is reported of their first requests."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import yaml

from tests.unit.benchmarks.running import run
from tests.unit.cli.running import assert_mistake

PREFIX = "vllm:spec_decode_num_"


class FakeServer:
    """A server that drafts 10 tokens for its first request if its memory is there, else 2; it keeps a memory."""

    starts: ClassVar[list[bool]] = []
    keeps = True

    def __init__(self, model: str, path: Path, *, extra_args: tuple[str, ...], environment: dict[str, str]) -> None:
        assert (extra_args, environment) == (("--enforce-eager",), {"VLLM_SPEC_MEMORY": "1"})
        self.base_url, self.drafted = "http://nowhere", 0
        self.memory = Path(yaml.safe_load(path.read_text())["draft_length"]["memory"])

    def __enter__(self) -> "FakeServer":
        self.is_warm = self.memory.exists()
        self.starts.append(self.is_warm)
        return self

    def __exit__(self, *args: object) -> None:
        # As after few steps, a cold start keeps nothing.
        if self.keeps and len(self.starts) == 1:
            self.memory.mkdir(exist_ok=True)
            (self.memory / "learned.json").write_text("{}")

    def metrics(self) -> dict[str, int]:
        """Returns the counters, which go up between two calls."""
        self.drafted += 10 if self.is_warm else 2
        return {f"{PREFIX}draft_tokens_total": self.drafted, f"{PREFIX}accepted_tokens_total": self.drafted // 2}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Returns the completions that are requested, of fake servers."""
    found: list[dict[str, Any]] = []
    client = SimpleNamespace(
        models=SimpleNamespace(list=lambda: SimpleNamespace(data=[SimpleNamespace(id="target")])),
        completions=SimpleNamespace(create=lambda **words: found.append(words)),
    )
    monkeypatch.setattr("openai.OpenAI", lambda **_: client)
    monkeypatch.setattr("vllm_spec_tools.engines.serving.Server", FakeServer)
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr(FakeServer, "starts", [])
    return found


def test_warm_and_cold_starts_take_turns_after_one_that_learns(asked: list[dict[str, Any]], tmp_path: Path) -> None:
    config, results = tmp_path / "plugin.yaml", tmp_path / "results.json"
    config.write_text("proposer: {method: suffix}\n")
    words = ("--restarts", "3", "--taught", "3", "--tokens", "20", "--engine=--enforce-eager")
    done = run("restarts", str(config), *words, "--json", str(results))
    assert done.exit_code == 0, done.output
    assert FakeServer.starts == [False, False, True, True, False, False, True]
    first = asked[3]["prompt"]
    assert [one["prompt"] == first for one in asked] == [False] * 3 + [True] * 7
    assert {(one["max_tokens"], one["temperature"]) for one in asked} == {(20, 0.0)}
    rows = json.loads(results.read_text())["measurements"]
    drafted = {(row["arm"], row["round"]): row["value"] for row in rows if row["metric"] == "draft"}
    warm, cold = {("warm start", i): 10 for i in range(3)}, {("cold start", i): 2 for i in range(3)}
    assert drafted == warm | cold | {("before the restart", 0): 2}
    assert "cold start" in done.output


def test_a_policy_that_learns_nothing_is_a_mistake(
    asked: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeServer, "keeps", False)
    config = tmp_path / "plugin.yaml"
    config.write_text("proposer: {method: suffix}\ndraft_length: {policy: fixed}\n")
    done = run("restarts", config, "--taught", "1", "--engine=--enforce-eager")
    assert_mistake(done, "the first server kept nothing; allowed: draft_length.policy: optimal")
    assert len(asked) == 2
