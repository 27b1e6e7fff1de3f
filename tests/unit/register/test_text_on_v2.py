"""With VLLM_USE_V2_MODEL_RUNNER=1 texts draft in the scheduler, heads on the V2 runner, and vLLM verifies."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import vllm_spec_plugin
from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.register import engine_args
from vllm_spec_plugin.register.modes import HEADS, IN_WORKERS, MIXED_HEADS, TEXT, DraftingMode, mode_of
from vllm_spec_plugin.schema.errors import ConfigError

EngineArgs = pytest.importorskip("vllm.engine.arg_utils").EngineArgs


@pytest.fixture(autouse=True)
def on_v2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "1")


def translated(folder: Path, text: str) -> Any:
    path = folder / "plugin.yaml"
    path.write_text(text)
    arguments = EngineArgs(model=str(model_path("target")))
    engine_args.translate(arguments, vllm_spec_plugin.speculative_config(path))
    return arguments


@pytest.mark.parametrize(
    "proposer",
    ["{method: suffix}", "{method: ngram}", "{method: cascade, proposers: [{method: prediction}, {method: suffix}]}"],
)
def test_the_scheduler_drafts(proposer: str, tmp_path: Path) -> None:
    arguments = translated(tmp_path, f"proposer: {proposer}\ndraft_length: {{tokens: 6}}")
    assert arguments.speculative_config["method"] == "ngram_gpu"
    assert arguments.speculative_config["num_speculative_tokens"] == 6
    assert arguments.scheduler_cls == TEXT.schedulers[0]
    assert arguments.worker_cls in TEXT.workers.values()
    assert arguments.async_scheduling is False


@pytest.mark.parametrize(
    ("proposer", "mode"),
    [
        ("{method: medusa, model: H}", HEADS),
        ("{method: cascade, proposers: [{method: suffix}, {method: medusa, model: H}]}", MIXED_HEADS),
        ("{method: cascade, proposers: [{method: medusa, model: H}, {method: suffix}]}", IN_WORKERS),
        ("{method: medusa, model: H, tree: auto}", IN_WORKERS),
        ("{method: eagle3, model: H}", IN_WORKERS),
    ],
)
def test_heads_draft_chains_on_the_runner_alone_or_after_texts(proposer: str, mode: DraftingMode) -> None:
    config = parse_config(yaml.safe_load(f"proposer: {proposer}"), "p.yaml")
    assert mode_of(config) == mode


def test_heads_may_be_scheduled_asynchronously(tmp_path: Path) -> None:
    arguments = translated(tmp_path, f"proposer: {{method: medusa, model: {model_path('medusa')}}}")
    assert (arguments.speculative_config["method"], arguments.async_scheduling) == ("ngram_gpu", None)
    assert arguments.worker_cls in HEADS.workers.values()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "proposer: {method: suffix}\nverification: {lenience: 0.5}",
            r"verification\.lenience: got 0\.5, but on the V2",
        ),
        ("proposer: {method: suffix, draft_sampling: sample}", r"draft_sampling: got the text 'sample', but on"),
    ],
)
def test_what_needs_verification_of_the_plugins_own_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        translated(tmp_path, text)
