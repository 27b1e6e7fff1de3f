"""With VLLM_USE_V2_MODEL_RUNNER=1 text proposers draft in the scheduler, and vLLM verifies."""

from pathlib import Path
from typing import Any

import pytest

import vllm_spec_plugin
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.register import engine_args
from vllm_spec_plugin.register.modes import TEXT
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
