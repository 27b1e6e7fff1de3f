"""Drafting modes: where drafts are made and verified, and the plugin's classes for each."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_spec_plugin.compat.engine_choice import EngineChoice, asked_for_v2, engine_of, takes_v2
from vllm_spec_plugin.config.on_v2 import on_v2
from vllm_spec_plugin.config.settings import KEY, config_in
from vllm_spec_plugin.schema.errors import ConfigError

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import VllmConfig
    from vllm_spec_plugin.config import PluginConfig

_SCHEDULING = "vllm_spec_plugin.scheduling"


def _workers(kind: str) -> dict[str, str]:
    return {name: f"vllm_spec_plugin.worker.{name}.{kind}{name.upper()}Worker" for name in ("cpu", "cuda")}


@dataclass(frozen=True)
class DraftingMode:
    """Schedulers and workers of a kind of drafting, and its verifier.

    Attributes:
        schedulers: classes for synchronous and asynchronous scheduling; the last is None where there is no such.
        workers: class by platform.
        drafts_in_scheduler: whether the scheduler's process drafts.
        vllm_verifies: whether vLLM's sampler verifies; else the plugin's does, on the V1 runner.
        needs_v2: whether it drafts on the V2 runner only.
    """

    schedulers: tuple[str, str | None]
    workers: dict[str, str]
    drafts_in_scheduler: bool
    vllm_verifies: bool
    needs_v2: bool = False


# Own proposers in the workers, on V1: all that `v1/` has.
_V1 = "vllm_spec_plugin.v1"
_PROPOSER = f"{_V1}.drafting.drafter.Drafter"
IN_WORKERS = DraftingMode(
    (f"{_V1}.scheduling.scheduler.SpecScheduler", None),
    {"cpu": f"{_V1}.cpu.SpecCPUWorker", "cuda": f"{_V1}.cuda.SpecCUDAWorker"},
    drafts_in_scheduler=False,
    vllm_verifies=False,
)
# Extends the workers of vLLM's drafters on a CPU.
PATCHED_SAMPLER = f"{_V1}.compat.cpu_sampler.PatchedSampler"
# vLLM's drafters.
NATIVE = DraftingMode(
    (f"{_SCHEDULING}.native.NativeScheduler", f"{_SCHEDULING}.native.NativeAsyncScheduler"),
    _workers("Native"),
    drafts_in_scheduler=False,
    vllm_verifies=True,
)
# Token-only proposers, and one of vLLM's drafters where these have no draft.
MIXED = DraftingMode(
    (f"{_SCHEDULING}.native.NativeScheduler", None), _workers("Own"), drafts_in_scheduler=True, vllm_verifies=True
)
# On the V2 runner: token-only proposers, heads, and heads where token-only proposers have no draft.
TOKEN_ONLY = DraftingMode(
    (f"{_SCHEDULING}.token_only.TokenOnlyScheduler", None),
    _workers("Own"),
    drafts_in_scheduler=True,
    vllm_verifies=True,
    needs_v2=True,
)
HEADS = replace(NATIVE, workers=_workers("Own"), needs_v2=True)
MIXED_HEADS = replace(MIXED, needs_v2=True)


class Runner(NamedTuple):
    """The runner for which a server is configured, before vLLM has chosen one.

    Attributes:
        written: the configuration as the file has it.
        config: the configuration as the runner serves it.
        is_v2: whether the plugin's proposers are to draft on V2. For vLLM's drafters vLLM itself chooses the runner.
        why_v1: the reason for V1; empty if the environment or the platform is one.
    """

    written: "PluginConfig"
    config: "PluginConfig"
    is_v2: bool = False
    why_v1: str = ""

    def on_v1(self, why: str) -> "Runner":
        """Returns the V1 runner for the same file."""
        return Runner(self.written, self.written, why_v1=why)


def first_runner(config: "PluginConfig", source: str) -> Runner:
    """Returns the runner to try first: V2 where vLLM takes it and it can serve the configuration.

    Raises:
        ConfigError: the environment asks for V2, which cannot serve it.
    """
    if config.is_native:
        return Runner(config, config)
    try:
        there = on_v2(config, source)
        return Runner(config, there, is_v2=True) if takes_v2() else Runner(config, config)
    except ConfigError as error:
        if asked_for_v2():
            text = "allowed: unset it, or serve without a plugin.yaml"
            raise ConfigError(f"VLLM_USE_V2_MODEL_RUNNER=1: {error}; {text}") from None
        return Runner(config, config, why_v1=str(error))


def engine_choice(vllm_config: "VllmConfig") -> EngineChoice:
    """Returns what vLLM has chosen for a configuration that has the plugin's settings."""
    settings: Any = vllm_config.additional_config
    mode = mode_of(config_in(settings), is_v2=vllm_config.use_v2_model_runner)
    return engine_of(vllm_config, drafts_in_scheduler=mode.drafts_in_scheduler, why_v1=settings[KEY].get("why_v1", ""))


def mode_of(config: "PluginConfig", *, is_v2: bool) -> DraftingMode:
    """Returns the mode of a configuration as a runner serves it."""
    is_cascade = len(config.proposers) > 1
    if config.is_native:
        return MIXED if is_cascade else NATIVE
    if not is_v2:
        return IN_WORKERS
    if config.is_token_only:
        return TOKEN_ONLY
    return MIXED_HEADS if is_cascade else HEADS


def speculative_config(config: "PluginConfig", mode: DraftingMode) -> dict[str, Any]:
    """vLLM's `speculative_config`."""
    tokens = config.draft_length.tokens
    if config.native is not None:
        native = {**config.native.config, "num_speculative_tokens": tokens}
        if (method := config.verification.method) in ("block", "token"):
            native["rejection_sample_method"] = "block" if method == "block" else "standard"
        return native
    if mode.needs_v2:
        # vLLM's n-gram drafter, which needs no model; `compat.v2` puts the plugin's in its place.
        settings = {"method": "ngram_gpu", "prompt_lookup_min": 1, "prompt_lookup_max": 1}
        return {**settings, "num_speculative_tokens": tokens}
    return {"method": "custom_class", "model": _PROPOSER, "num_speculative_tokens": tokens}
