"""Turns a plugin.yaml into vLLM's own engine arguments."""

import argparse
import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_spec_plugin.compat import engine_args as vllm_args
from vllm_spec_plugin.config.settings import KEY, config_in, settings_for
from vllm_spec_plugin.register import frontend
from vllm_spec_plugin.register.version import UnsupportedVersionError, check_vllm_version
from vllm_spec_plugin.schema.errors import ConfigError

if TYPE_CHECKING:
    from vllm_spec_plugin.config import PluginConfig
    from vllm_spec_plugin.proposers.section import Target

logger = logging.getLogger("vllm.vllm_spec_plugin")

SCHEDULER = "vllm_spec_plugin.scheduling.scheduler.SpecScheduler"
WORKERS = {
    "cpu": "vllm_spec_plugin.forward.cpu.SpecCPUWorker",
    "cuda": "vllm_spec_plugin.forward.cuda.SpecCUDAWorker",
}
# Engine arguments that `translate` sets.
REPLACED = ("speculative_config", "worker_cls", "scheduler_cls", "additional_config")


class _FromCommandLine(dict[str, Any]):
    """Settings from a command line, whose mistakes end the program with one message."""


def patch() -> None:
    """Makes `--speculative-config` and `speculative_config=` accept a plugin.yaml."""
    vllm_args.patch(_parse_path, _configure)


def _parse_path(value: str) -> Any:
    try:
        check_vllm_version()
        return _FromCommandLine(settings_for(value))
    except (UnsupportedVersionError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _configure(engine_args: Any, create: Callable[[], Any]) -> Any:
    """Creates vLLM's configuration, with the plugin's settings if the arguments have a plugin.yaml."""
    given = engine_args.speculative_config
    if not (isinstance(given, dict) and KEY in given):
        return create()
    check_vllm_version()
    # vLLM may create the config again, so the arguments keep their values.
    before = {name: getattr(engine_args, name) for name in REPLACED}
    try:
        with _one_message(given):
            plugin = translate(engine_args, given)
        config = create()
    finally:
        for name, value in before.items():
            setattr(engine_args, name, value)
    with _one_message(given):
        from vllm_spec_plugin.support.gate import check_served

        check_served(config, plugin, given[KEY]["source"])
    frontend.patch()
    setattr(config.speculative_config, frontend.METHODS, tuple(proposer.method for proposer in plugin.proposers))
    takes_predictions = any(proposer.uses_predictions for proposer in plugin.proposers)
    setattr(config.speculative_config, frontend.PREDICTIONS, takes_predictions)
    return config


@contextlib.contextmanager
def _one_message(given: dict[str, Any]) -> Iterator[None]:
    """Ends the program with one message, like its argument parser, if the settings come from its command line."""
    try:
        yield
    except ValueError as error:
        if not isinstance(given, _FromCommandLine):
            raise
        print(f"{Path(sys.argv[0]).name}: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def translate(engine_args: Any, given: dict[str, Any]) -> "PluginConfig":
    """Turns the plugin's settings into vLLM's, in place (`REPLACED`).

    Args:
        engine_args: vLLM's `EngineArgs`.
        given: value of `vllm_spec_plugin.speculative_config`.

    Returns:
        The plugin's configuration.

    Raises:
        ConfigError: settings conflict, the platform is not supported, or a draft model does not fit.
    """
    extra = sorted(set(given) - {KEY})
    if extra:
        raise ConfigError(
            f"speculative_config: got {', '.join(extra)} beside a plugin.yaml; allowed: a plugin.yaml only"
        )
    platform = vllm_args.platform()
    if platform is None:
        raise ConfigError("vllm_spec_plugin does not support this platform; allowed: CPU, CUDA")
    for name, default in (("worker_cls", "auto"), ("scheduler_cls", None)):
        if getattr(engine_args, name, default) not in (default, None):
            raise ConfigError(
                f"{name}: got {getattr(engine_args, name)!r}, but the plugin sets its own; allowed: leave it out"
            )
    config = config_in(given)
    config.check_proposers(_target(engine_args), given[KEY]["source"])
    engine_args.speculative_config = {
        "method": "custom_class",
        "model": frontend.PROPOSER,
        "num_speculative_tokens": config.draft_length.tokens,
    }
    engine_args.worker_cls = WORKERS[platform]
    engine_args.scheduler_cls = SCHEDULER
    additional = engine_args.additional_config
    engine_args.additional_config = {**(additional or {}), KEY: given[KEY]}
    if config.verification.lenience < 1:
        logger.warning(
            "%s: verification.lenience is %g: speculation is LOSSY, outputs do not have the model's distribution",
            given[KEY]["source"],
            config.verification.lenience,
        )
    return config


def _target(engine_args: Any) -> "Target":
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
    return Target(source, engine_args.tensor_parallel_size, max_model_len, vllm_args.quantization_methods())
