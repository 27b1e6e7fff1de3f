"""Turns a configuration for a runner into vLLM's engine arguments, and checks it against them."""

import logging
from typing import TYPE_CHECKING

from vllm_spec_plugin.compat import engine_args as vllm_args
from vllm_spec_plugin.compat.resting import is_own_worker
from vllm_spec_plugin.config.settings import KEY, settings_of
from vllm_spec_plugin.register.modes import NATIVE, PATCHED_SAMPLER, Runner, mode_of, speculative_config
from vllm_spec_plugin.schema.errors import ConfigError, show, show_source

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import EngineArgs, VllmConfig
    from vllm_spec_plugin.config import PluginConfig
    from vllm_spec_plugin.proposers.section import Target

logger = logging.getLogger("vllm.vllm_spec_plugin")

# Engine arguments that `translate` sets.
REPLACED = ("speculative_config", "worker_cls", "scheduler_cls", "additional_config", "async_scheduling")


def check_proposers(engine_args: "EngineArgs", config: "PluginConfig", source: str) -> None:
    """Checks whether a file's proposers can draft for the target; logs warnings.

    Args:
        engine_args: vLLM's `EngineArgs`.
        config: the configuration as the file has it.
        source: name of the file.

    Raises:
        ConfigError: the platform is not supported, or a proposer cannot draft for it.
    """
    if vllm_args.platform() is None:
        raise ConfigError("vllm_spec_plugin does not support this platform; allowed: CPU, CUDA")
    config.check_proposers(_target(engine_args), source)


def translate(engine_args: "EngineArgs", runner: Runner, source: str) -> None:
    """Turns the plugin's settings into vLLM's, in place (`REPLACED`).

    Args:
        engine_args: vLLM's `EngineArgs`.
        runner: the runner that is to serve.
        source: name of the configuration file.

    Raises:
        ConfigError: settings conflict.
    """
    platform = vllm_args.platform()
    assert platform is not None, "refused before"
    config = runner.config
    mode = mode_of(config, is_v2=runner.is_v2)
    # vLLM's own drafters need none of the plugin's workers but to reload weights.
    own = {"scheduler_cls": None} | ({"worker_cls": "auto"} if mode is not NATIVE else {})
    for name, default in own.items():
        if getattr(engine_args, name, default) not in (default, None):
            raise ConfigError(
                f"{name}: got {getattr(engine_args, name)!r}, but the plugin sets its own; allowed: leave it out"
            )
    settings = settings_of(config, source)
    if runner.why_v1:
        settings[KEY]["why_v1"] = runner.why_v1
    engine_args.additional_config = {**(engine_args.additional_config or {}), **settings}
    if not config.is_native:
        check_verification(config, source, is_v2=runner.is_v2)
    engine_args.speculative_config = speculative_config(config, mode)
    if mode is not NATIVE or engine_args.worker_cls == "auto":
        engine_args.worker_cls = mode.workers[platform]
    if mode.schedulers[1] is None:
        engine_args.scheduler_cls = mode.schedulers[0]
    if mode.drafts_in_scheduler:
        engine_args.async_scheduling = False
    if config.verification.lenience < 1:
        logger.warning(
            "%s: verification.lenience is %g: speculation is LOSSY, outputs do not have the model's distribution",
            source,
            config.verification.lenience,
        )


def check_verification(config: "PluginConfig", source: str, *, is_v2: bool) -> None:
    """Refuses verification settings that the model runner does not support."""
    shown, verification = show_source(source), config.verification
    here = f"but vLLM's {'V2' if is_v2 else 'V1'} runner serves"
    if is_v2 and verification.lenience < 1:
        text = f"verification.lenience: got {verification.lenience:g}, {here}, which verifies exactly; allowed: 1"
        raise ConfigError(f"{shown}: {text}")
    if not is_v2 and verification.method == "coupled":
        text = f"verification.method: got coupled, {here}, whose noise does not depend on positions"
        raise ConfigError(f"{shown}: {text}; allowed: block or token, or leave it out")
    for proposer in config.proposers:
        sampling = getattr(proposer, "draft_sampling", None)
        if sampling in (None, "greedy") or (sampling != "shared" and not is_v2):
            continue
        if sampling == "shared" and is_v2 and config.verified_on_v2 == "coupled":
            continue
        reason = f" with verification.method {config.verified_on_v2}" if is_v2 else ""
        text = f"draft_sampling: got {show(sampling)}, {here}{reason}; allowed: greedy, or leave it out"
        raise ConfigError(f"{config.where(proposer, shown)}: {text}")


def check_worker(config: "PluginConfig", vllm_config: "VllmConfig", source: str) -> None:
    """Refuses a verification on V2 that a user's own worker does not have; logs what vLLM verifies instead."""
    worker, method = vllm_config.parallel_config.worker_cls, config.verified_on_v2
    if not vllm_config.use_v2_model_runner or method == "token" or is_own_worker(worker):
        return
    why = f"worker_cls {worker!r} is no subclass of the plugin's worker"
    if config.verification.method is not None:
        text = f"verification.method: got {method}, but {why}; allowed: token, or leave it out"
        raise ConfigError(f"{show_source(source)}: {text}")
    logger.warning("%s: vLLM verifies token by token, and seeded outputs depend on drafts", why)


def patch_sampler(config: "VllmConfig") -> None:
    """Lets the workers of a CPU's V1 runner verify sampled drafts right."""
    parallel = config.parallel_config
    if vllm_args.platform() != "cpu" or config.use_v2_model_runner:
        return
    if parallel.worker_extension_cls not in ("", PATCHED_SAMPLER):
        raise ConfigError(
            f"worker_extension_cls: got {parallel.worker_extension_cls!r}, but on a CPU the plugin sets its own to "
            "correct vLLM's sampler; allowed: leave it out"
        )
    parallel.worker_extension_cls = PATCHED_SAMPLER


def _target(engine_args: "EngineArgs") -> "Target":
    from vllm_spec_plugin.proposers.model_source import ModelSource
    from vllm_spec_plugin.proposers.section import Target

    source = ModelSource(
        model=engine_args.model,
        tokenizer=engine_args.tokenizer,
        revision=engine_args.revision,
        tokenizer_revision=engine_args.tokenizer_revision,
        trust_remote_code=engine_args.trust_remote_code,
        skip_tokenizer=engine_args.skip_tokenizer_init,
    )
    # vLLM's -1 is as much as fits in memory, at most the context of the target's config.
    given = engine_args.max_model_len
    max_model_len = given if given is not None and given > 0 else None
    quantizations, load_format = vllm_args.quantization_methods(), str(engine_args.load_format)
    return Target(source, engine_args.tensor_parallel_size, max_model_len, quantizations, load_format)
