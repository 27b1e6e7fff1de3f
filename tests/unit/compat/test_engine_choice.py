"""Which runner and scheduling serve, and why: read from vLLM's configuration, whatever made it."""

from types import SimpleNamespace

import pytest

from vllm_spec_plugin.compat import engine_choice
from vllm_spec_plugin.compat.engine_choice import conflict, engine_of
from vllm_spec_plugin.compat.installed import installed_version
from vllm_spec_plugin.models import model_path

platforms = pytest.importorskip("vllm.platforms")
EngineArgs = pytest.importorskip("vllm.engine.arg_utils").EngineArgs


def config(method=None, *, v2=False, is_async=False, unsupported=()):
    """Stands in for the parts of a `VllmConfig` that are read."""
    return SimpleNamespace(
        speculative_config=method and SimpleNamespace(method=method),
        use_v2_model_runner=v2,
        scheduler_config=SimpleNamespace(async_scheduling=is_async),
        _get_v2_model_runner_unsupported_features=lambda: list(unsupported),
    )


@pytest.fixture
def on_gpu(monkeypatch):
    """Pretends a platform that has Triton and asynchronous scheduling."""
    monkeypatch.setattr(engine_choice, "has_triton", lambda: True)
    monkeypatch.setattr(platforms, "current_platform", SimpleNamespace(is_cpu=lambda: False))


CUSTOM_RUNNER = "V1 runner: trees need V1"
CUSTOM_SCHEDULING = "synchronous scheduling: vLLM's V1 runner has no asynchronous scheduling for custom proposers"
DEFAULTS = "V2 runner: vLLM's default", "asynchronous scheduling: vLLM's default"


@pytest.mark.parametrize(
    ("given", "runner", "scheduling"),
    [
        (config("custom_class"), CUSTOM_RUNNER, CUSTOM_SCHEDULING),
        (config("eagle3", v2=True, is_async=True), *DEFAULTS),
        (config(v2=True, is_async=True), *DEFAULTS),
        (
            config("suffix", unsupported=["speculative method 'suffix'"]),
            "V1 runner: V2 does not support speculative method 'suffix'",
            "synchronous scheduling: --no-async-scheduling, or an option",
        ),
    ],
    ids=["custom", "eagle3", "none", "suffix"],
)
def test_on_a_gpu_it_is_what_the_configuration_says(on_gpu, given, runner, scheduling):
    is_custom = given.speculative_config and given.speculative_config.method == "custom_class"
    found = engine_of(given, why_v1="trees need V1" if is_custom else "")
    assert found.runner.startswith(runner)
    assert found.scheduling.startswith(scheduling)
    assert str(found) == f"vLLM {found.vllm}; {found.runner}; {found.scheduling}"


@pytest.mark.skipif("cpu" not in installed_version(), reason="the CPU platform's reasons")
def test_vllms_own_configuration_of_a_custom_proposer():
    """Tests the choice of vLLM itself on a CPU, not of a stand-in."""
    custom = {"method": "custom_class", "model": "a.module.Proposer", "num_speculative_tokens": 1}
    made = EngineArgs(model=str(model_path("target")), speculative_config=custom).create_engine_config()
    found = engine_of(made, why_v1="trees need V1")
    assert found.vllm == f"{installed_version()} (CPU build)"
    assert found.runner.startswith(CUSTOM_RUNNER)
    assert found.scheduling.startswith(CUSTOM_SCHEDULING)
    assert found.scheduling.endswith(", and vLLM's CPU platform has no other")
    assert found.runner.endswith(", and V2 needs Triton, which is not available here") is not engine_choice.has_triton()


V2, RUST = "VLLM_USE_V2_MODEL_RUNNER", "VLLM_USE_RUST_FRONTEND"
WORKERS = {"is_api_server": True, "in_workers": True, "drafts_in_scheduler": False, "needs_v2": False}
SCHEDULER = {"is_api_server": True, "in_workers": False, "drafts_in_scheduler": True, "needs_v2": True}


@pytest.mark.parametrize(
    ("variables", "has_triton", "is_async", "kind", "said"),
    [
        ({V2: "0"}, True, None, WORKERS, ""),
        ({RUST: "1"}, True, None, WORKERS, "VLLM_USE_RUST_FRONTEND=1: checks of requests, predicted outputs"),
        ({RUST: "1"}, True, None, WORKERS | {"is_api_server": False}, ""),
        ({RUST: "0"}, True, None, WORKERS, ""),
        ({V2: "1"}, False, None, SCHEDULER, "VLLM_USE_V2_MODEL_RUNNER=1: "),
        ({V2: "1"}, True, None, SCHEDULER, ""),
        ({V2: "1"}, True, True, SCHEDULER, "--async-scheduling: the plugin drafts after the last step's tokens"),
        ({}, True, True, WORKERS, "--async-scheduling: vLLM's V1 runner has no asynchronous"),
        ({}, True, False, WORKERS, ""),
        ({}, True, True, WORKERS | {"in_workers": False}, ""),
    ],
)
def test_what_drafts_cannot_have_is_refused_if_it_is_asked_for(
    monkeypatch, variables, has_triton, is_async, kind, said
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(engine_choice, "has_triton", lambda: has_triton)
    found = conflict(is_async, **kind)
    assert found.startswith(said)
    assert bool(found) == bool(said)
    assert not said or f"(vLLM {installed_version()}); allowed: " in found
