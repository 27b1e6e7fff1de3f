"""The runner that a configuration is tried on first, and its form there."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.register.arguments import Arguments
from vllm_spec_plugin.compat import engine_choice
from vllm_spec_plugin.config import PluginConfig, parse_config
from vllm_spec_plugin.config.settings import KEY, config_in
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.register import engine_args, modes, plugin
from vllm_spec_plugin.register.modes import (
    HEADS,
    MIXED,
    MIXED_HEADS,
    NATIVE,
    TOKEN_ONLY,
    DraftingMode,
    first_runner,
    mode_of,
)
from vllm_spec_plugin.schema.errors import ConfigError

EngineArgs = pytest.importorskip("vllm.engine.arg_utils").EngineArgs
VllmConfig = pytest.importorskip("vllm.config").VllmConfig
VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
MEDUSA = "{method: medusa, model: H}"
DRAFT = "{method: draft_model, model: D, revision: r, max_model_len: 64}"


def cascade(*members: str) -> str:
    return f"{{method: cascade, proposers: [{', '.join(members)}]}}"


def config(text: str) -> PluginConfig:
    return parse_config(yaml.safe_load(f"proposer: {text}"), "p.yaml")


@pytest.fixture(autouse=True)
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretends that vLLM has Triton, in the plugin's eyes only."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(engine_choice, "has_triton", lambda: True)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("{method: suffix}", TOKEN_ONLY),
        (cascade("{method: prediction}", "{method: ngram}"), TOKEN_ONLY),
        (MEDUSA, HEADS),
        (cascade("{method: suffix}", MEDUSA), MIXED_HEADS),
        (DRAFT, NATIVE),
        (cascade("{method: suffix}", DRAFT), MIXED),
        (f"{MEDUSA}\nverification: {{method: block}}", HEADS),
    ],
)
def test_where_vllm_takes_v2_what_it_can_serve_is_tried_there(text: str, mode: DraftingMode) -> None:
    runner = first_runner(config(text), "p.yaml")
    assert (runner.is_v2, runner.why_v1) == (True, "")
    assert mode_of(runner.config, is_v2=True) is mode


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{method: suffix}\nverification: {lenience: 0.9}", "verification.lenience below 1 needs"),
        ("{method: medusa, model: H, tree: auto}", "trees need"),
        ("{method: eagle3, model: H}", "the plugin's eagle3 needs"),
        ("{method: draft_model, model: D, dtype: float32}", "the plugin's draft_model needs"),
        (cascade(MEDUSA, "{method: suffix}"), "a method after medusa needs"),
        (cascade(DRAFT, "{method: suffix}"), "a method after draft_model needs"),
    ],
)
def test_what_v2_cannot_serve_goes_to_v1_with_the_reason(text: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = first_runner(config(text), "p.yaml")
    assert runner.config is runner.written
    assert (runner.is_v2, runner.why_v1) == (False, f"{why} V1")
    monkeypatch.setenv(VARIABLE, "1")
    with pytest.raises(ConfigError, match=rf"^{VARIABLE}=1: {why} V1; allowed: unset it, or serve without"):
        first_runner(config(text), "p.yaml")


def test_the_variable_keeps_v1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0")
    runner = first_runner(config("{method: suffix}"), "p.yaml")
    assert (runner.is_v2, runner.why_v1) == (False, "")


NATIVE_DRAFT = {"method": "draft_model", "model": "D", "revision": "r", "max_model_len": 64}


@pytest.mark.parametrize(
    ("sampling", "method", "theirs"),
    [
        ("", "", {}),
        ("shared", "coupled", {}),
        ("greedy", "", {"draft_sample_method": "greedy"}),
        ("probabilistic", "", {"draft_sample_method": "probabilistic"}),
        ("", "block", {"draft_sample_method": "probabilistic"}),
        ("greedy", "token", {"draft_sample_method": "greedy"}),
    ],
)
def test_on_v2_a_draft_model_is_vllms_drafter(sampling: str, method: str, theirs: dict[str, Any]) -> None:
    """The rest of the file stays as it is."""
    text = DRAFT.replace("}", f", draft_sampling: {sampling}}}") if sampling else DRAFT
    written = config(f"{text}\ndraft_length: {{policy: fixed, tokens: 7}}")
    if method:
        written = config(f"{text}\ndraft_length: {{policy: fixed, tokens: 7}}\nverification: {{method: {method}}}")
    native = first_runner(written, "p.yaml").config
    assert native.native is not None
    assert native.native.config == NATIVE_DRAFT | theirs
    expected = written.model_dump(exclude={"proposer"})
    assert native.model_dump(exclude={"proposer"}) == expected


def test_after_texts_a_draft_has_no_q() -> None:
    written = config(f"{cascade('{method: suffix}', DRAFT)}\nverification: {{method: block}}")
    [_, last] = first_runner(written, "p.yaml").config.proposers
    assert last.model_dump()["config"] == NATIVE_DRAFT


@pytest.mark.parametrize("proposer", ["{method: suffix}", f"{{method: draft_model, model: {model_path('draft')}}}"])
def test_where_vllm_does_not_take_v2_after_all_v1_serves_and_says_why(
    proposer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM itself; as if it found something that V2 does not support."""
    monkeypatch.setattr(VllmConfig, "_get_v2_model_runner_unsupported_features", lambda _: ["two batches"])
    path = tmp_path / "plugin.yaml"
    path.write_text(f"proposer: {proposer}")
    plugin.register()
    arguments = EngineArgs(
        model=str(model_path("target")), max_model_len=256, dtype="float32", speculative_config=str(path)
    )
    served = arguments.create_engine_config()
    assert served.speculative_config.method == "custom_class"
    assert config_in(served.additional_config).proposers[-1].method in proposer
    assert served.additional_config[KEY]["why_v1"] == "V2 does not support two batches"
    assert "V1 runner: V2 does not support two batches" in modes.engine_choice(served).runner


def test_what_the_gate_refuses_on_v2_is_tried_on_v1(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def create(engine_args_: Any, create_: Any, runner: Any, source: str) -> Any:
        asked.append((runner.is_v2, runner.why_v1))
        raise ConfigError("p.yaml: got pipeline stages; allowed: 1" if runner.is_v2 else "p.yaml: V1 refuses it")

    monkeypatch.setattr(engine_args, "_created", create)
    settings = {KEY: {"config": config("{method: suffix}").model_dump(mode="json"), "source": "p.yaml"}}
    with pytest.raises(ConfigError, match=r"V1 refuses it; on the V2 runner: p\.yaml: got pipeline stages"):
        engine_args.configure(Arguments(speculative_config=settings), lambda: None)
    assert asked == [(True, ""), (False, "p.yaml: got pipeline stages; allowed: 1")]
    asked.clear()
    monkeypatch.setenv(VARIABLE, "1")
    with pytest.raises(ConfigError, match="got pipeline stages"):
        engine_args.configure(Arguments(speculative_config=settings), lambda: None)
    assert asked == [(True, "")]
