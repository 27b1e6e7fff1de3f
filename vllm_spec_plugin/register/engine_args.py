"""vLLM's engine arguments: where a plugin.yaml comes in and becomes stock settings."""

import argparse
import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_spec_plugin.compat.patching import wrap
from vllm_spec_plugin.compat.version import UnsupportedVersionError, check_vllm_version
from vllm_spec_plugin.config.settings import KEY, config_in, settings_for
from vllm_spec_plugin.support.rules import UnsupportedError

if TYPE_CHECKING:
    from vllm_spec_plugin.config import PluginConfig
    from vllm_spec_plugin.proposers.section import Target

logger = logging.getLogger("vllm.vllm_spec_plugin")

PROPOSER = "vllm_spec_plugin.drafting.drafter.Drafter"
SCHEDULER = "vllm_spec_plugin.scheduling.scheduler.SpecScheduler"
# Set on vLLM's `SpeculativeConfig`: the methods of the proposers that are served.
METHODS = "vllm_spec_plugin_methods"
# Engine arguments that `translate` sets.
REPLACED = ("speculative_config", "worker_cls", "scheduler_cls", "additional_config")
WORKERS = {
    "cpu": "vllm_spec_plugin.forward.cpu.SpecCPUWorker",
    "cuda": "vllm_spec_plugin.forward.cuda.SpecCUDAWorker",
}


class _FromCommandLine(dict[str, Any]):
    """Settings that were named on a command line: what is wrong with them ends the program with one message."""


def patch() -> None:
    """Lets `--speculative-config` and `speculative_config=` take a plugin.yaml."""
    from vllm.engine.arg_utils import EngineArgs

    wrap(EngineArgs, "add_cli_args", _accept_paths)
    wrap(EngineArgs, "create_engine_config", _translate_settings)


def _accept_paths(original: Callable[..., Any]) -> Callable[..., Any]:
    def add_cli_args(parser: Any) -> Any:
        parser = original(parser)
        # A vLLM without the option keeps its own ways, and its own message for a path.
        action = next((a for a in parser._actions if "--speculative-config" in a.option_strings), None)
        if action is not None:
            action.type = _path_or_json(action.type)
            action.help = f"{action.help or ''}\nOr the path of a vllm_spec_plugin plugin.yaml."
        return parser

    return add_cli_args


def _path_or_json(parse_json: Callable[[str], Any]) -> Callable[[str], Any]:
    def speculative_config(value: str) -> Any:
        if value in ("", "None") or value.lstrip().startswith("{"):
            return parse_json(value)
        try:
            check_vllm_version()
            return _FromCommandLine(settings_for(value))
        except (UnsupportedVersionError, ValueError) as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return speculative_config


def _translate_settings(original: Callable[..., Any]) -> Callable[..., Any]:
    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = self.speculative_config
        if not (isinstance(given, dict) and KEY in given):
            return original(self, *args, **kwargs)
        check_vllm_version()
        # vLLM may ask for the config again, so the arguments stay as they were given.
        before = {name: getattr(self, name) for name in REPLACED}
        try:
            with _one_message(given):
                plugin = translate(self, given)
            config = original(self, *args, **kwargs)
        finally:
            for name, value in before.items():
                setattr(self, name, value)
        with _one_message(given):
            from vllm_spec_plugin.support.gate import check_served

            check_served(config, plugin, given[KEY]["source"])
        from vllm_spec_plugin.register import frontend

        frontend.patch()
        setattr(config.speculative_config, METHODS, tuple(proposer.method for proposer in plugin.proposers))
        return config

    return create_engine_config


@contextlib.contextmanager
def _one_message(given: dict[str, Any]) -> Iterator[None]:
    """Ends a program whose command line named the settings with one message, as its parser does for a mistake."""
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
        given: what `vllm_spec_plugin.speculative_config` returned.

    Returns:
        The plugin's configuration.

    Raises:
        ConfigError: other settings are in the way, the platform is not supported, or a draft model does not fit.
    """
    from vllm.platforms import current_platform

    extra = sorted(set(given) - {KEY})
    if extra:
        raise UnsupportedError(f"speculative_config: {', '.join(extra)} can't be given beside a plugin.yaml")
    platform = "cpu" if current_platform.is_cpu() else "cuda" if current_platform.is_cuda() else None
    if platform is None:
        raise UnsupportedError("vllm_spec_plugin runs on CPU and CUDA, not on this platform")
    for name, default in (("worker_cls", "auto"), ("scheduler_cls", None)):
        if getattr(engine_args, name, default) not in (default, None):
            raise UnsupportedError(
                f"{name}={getattr(engine_args, name)!r}: the plugin needs its own {name}, leave it out"
            )
    config = config_in(given)
    config.check_proposers(_target(engine_args), given[KEY]["source"])
    engine_args.speculative_config = {
        "method": "custom_class",
        "model": PROPOSER,
        "num_speculative_tokens": config.draft_length.tokens,
    }
    engine_args.worker_cls = WORKERS[platform]
    engine_args.scheduler_cls = SCHEDULER
    additional = engine_args.additional_config
    engine_args.additional_config = {**(additional or {}), KEY: given[KEY]}
    if config.verification.lenience < 1:
        logger.warning(
            "%s: verification.lenience is %g: speculation is LOSSY, outputs differ from the model's own",
            given[KEY]["source"],
            config.verification.lenience,
        )
    return config


def _target(engine_args: Any) -> "Target":
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS

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
    # vLLM's -1 is "as much as fits", at most what the target's config says.
    given = engine_args.max_model_len
    max_model_len = given if given is not None and given > 0 else None
    return Target(source, engine_args.tensor_parallel_size, max_model_len, tuple(QUANTIZATION_METHODS))


def is_ours(speculative_config: Any) -> bool:
    """Whether vLLM's `SpeculativeConfig` was made by `translate`."""
    return speculative_config is not None and speculative_config.model == PROPOSER
