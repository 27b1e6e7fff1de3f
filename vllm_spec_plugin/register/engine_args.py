"""Turns a plugin.yaml into vLLM's own engine arguments."""

import argparse
import contextlib
import functools
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_spec_plugin.compat import engine_args as vllm_args
from vllm_spec_plugin.compat.engine_choice import asked_for_v2, conflict
from vllm_spec_plugin.config.settings import KEY, config_in, settings_for
from vllm_spec_plugin.register import frontend
from vllm_spec_plugin.register.modes import (
    IN_WORKERS,
    Runner,
    engine_choice,
    first_runner,
    mode_of,
)
from vllm_spec_plugin.register.switch import reason_off
from vllm_spec_plugin.register.translation import (
    REPLACED,
    check_proposers,
    check_verification,
    check_worker,
    patch_sampler,
    translate,
)
from vllm_spec_plugin.register.version import check_vllm
from vllm_spec_plugin.schema.errors import ConfigError, show, show_reason, show_source

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import EngineArgs, VllmConfig
    from vllm_spec_plugin.config import PluginConfig

logger = logging.getLogger("vllm.vllm_spec_plugin")


class _FromCommandLine(dict[str, Any]):
    """Settings from a command line, whose mistakes end the program with one message."""


def patch() -> None:
    """Makes `--speculative-config` and `speculative_config=` accept a plugin.yaml, and `additional_config` name one."""
    vllm_args.patch(_parse_speculative, _parse_additional, configure)


def _parse_speculative(parse_json: Callable[[str], Any], value: str) -> Any:
    is_json = value in ("", "None") or value.lstrip().startswith("{")
    given = parse_json(value) if is_json else {KEY: value}
    return _parsed(given) if _is_ours(given) else given


def _parse_additional(parse_json: Callable[[str], Any], value: str) -> Any:
    given = parse_json(value)
    if isinstance(given, dict) and KEY in given:
        given[KEY] = _parsed({KEY: given[KEY]})
    return given


def _parsed(given: dict[str, Any]) -> dict[str, Any]:
    if reason_off():
        return given
    try:
        check_vllm()
        settings = _FromCommandLine(_read(given))
        # `vllm serve` looks for its Rust frontend before it creates a configuration.
        runner = first_runner(config_in(settings), settings[KEY]["source"])
        _check_conflict(runner, None, is_api_server=sys.argv[1:2] == ["serve"])
        return settings
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _is_ours(given: Any) -> bool:
    return isinstance(given, str | os.PathLike) or (isinstance(given, dict) and KEY in given)


def _read(given: Any) -> dict[str, Any]:
    """Reads the plugin.yaml that a speculative config names.

    Args:
        given: a path, {"vllm_spec_plugin": PATH}, or settings that were read already.

    Raises:
        ConfigError: the file has a mistake, or there are other keys beside it.
    """
    if not isinstance(given, dict):
        return settings_for(given)
    if extra := sorted(set(given) - {KEY}):
        raise ConfigError(
            f"speculative_config: got {', '.join(extra)} together with a plugin.yaml; allowed: a plugin.yaml only"
        )
    named = given[KEY]
    if isinstance(named, str | os.PathLike):
        return settings_for(named)
    if isinstance(named, dict) and named.keys() == {"config", "source"}:
        return given
    raise ConfigError(f"{KEY}: got {show(named)}; allowed: the path of a plugin.yaml")


def _given(engine_args: "EngineArgs") -> Any:
    """Returns what the arguments say about a plugin.yaml; None if nothing.

    In `additional_config`, which vLLM ignores, a plugin.yaml can be named for servers that must also start where vLLM
    does not load the plugin.
    """
    speculative, additional = engine_args.speculative_config, engine_args.additional_config
    if not (isinstance(additional, dict) and KEY in additional):
        return speculative if _is_ours(speculative) else None
    if speculative is not None:
        raise ConfigError(f"additional_config.{KEY}: got a plugin.yaml and speculative_config; allowed: one of them")
    return additional[KEY] if isinstance(additional[KEY], _FromCommandLine) else {KEY: additional[KEY]}


def configure(engine_args: "EngineArgs", create: Callable[[], Any], is_api_server: bool = False) -> Any:
    """Creates vLLM's configuration, with the plugin's settings if the arguments have a plugin.yaml."""
    given = _given(engine_args)
    if given is None:
        return create()
    # vLLM may create the config again, so the arguments keep their values.
    before = {name: getattr(engine_args, name) for name in REPLACED}
    try:
        if reason := reason_off():
            log_once(logging.WARNING, f"{reason}: serving WITHOUT speculation, a plugin.yaml has no effect")
            engine_args.speculative_config = None
            return create()
        with _one_message(given):
            check_vllm()
            settings = _read(given)
            source = settings[KEY]["source"]
            runner = first_runner(config_in(settings), source)
            _check_conflict(runner, engine_args.async_scheduling, is_api_server=is_api_server)
            check_proposers(engine_args, runner.written, source)
            try:
                config, plugin = _created(engine_args, create, runner, source)
            except ConfigError as error:
                if not runner.is_v2 or asked_for_v2():
                    raise
                _restore(engine_args, before)
                runner = runner.on_v1(show_reason(error))
                try:
                    _check_conflict(runner, engine_args.async_scheduling, is_api_server=is_api_server)
                    config, plugin = _created(engine_args, create, runner, source)
                except ConfigError as other:
                    raise ConfigError(f"{other}; on the V2 runner: {runner.why_v1}") from None
    finally:
        _restore(engine_args, before)
    is_v2 = config.use_v2_model_runner
    mode = mode_of(plugin, is_v2=is_v2)
    if mode.schedulers[1] is not None:
        # vLLM has chosen only now.
        config.scheduler_config.scheduler_cls = mode.schedulers[bool(config.scheduler_config.async_scheduling)]
    frontend.patch()
    assert config.speculative_config is not None
    vllm_refuses = mode.vllm_verifies and not is_v2
    frontend.attach(config.speculative_config, plugin, vllm_verifies=mode.vllm_verifies, vllm_refuses=vllm_refuses)
    drafter = "; the draft model is vLLM's drafter" if plugin is not runner.written else ""
    engine = f"{engine_choice(config)}{drafter}"
    log_once(logging.INFO, f"vllm_spec_plugin {plugin.summary['version']} serves with {engine}")
    return config


def _restore(engine_args: "EngineArgs", values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(engine_args, name, value)


def _created(
    engine_args: "EngineArgs", create: Callable[[], Any], runner: Runner, source: str
) -> "tuple[VllmConfig, PluginConfig]":
    """Creates vLLM's configuration for a runner, and checks it.

    Raises:
        ConfigError: the plugin refuses it, or vLLM has chosen another runner.
    """
    translate(engine_args, runner, source)
    plugin = runner.config
    with vllm_args.speculative_config_made_by(_naming(source) if plugin.is_native else None, engine_args):
        config: VllmConfig = create()
    if runner.is_v2 and not config.use_v2_model_runner:
        raise ConfigError(engine_choice(config).runner.removeprefix("V1 runner: "))
    from vllm_spec_plugin.gate.gate import check_served

    check_served(config, plugin, source)
    if plugin.is_native:
        # vLLM has chosen the runner only now.
        check_verification(plugin, source, is_v2=config.use_v2_model_runner)
        check_worker(plugin, config, source)
        patch_sampler(config)
    return config, plugin


def _check_conflict(runner: Runner, async_scheduling: bool | None, *, is_api_server: bool) -> None:
    mode = mode_of(runner.config, is_v2=runner.is_v2)
    kind = {"in_workers": mode is IN_WORKERS, "drafts_in_scheduler": mode.drafts_in_scheduler, "needs_v2": runner.is_v2}
    if reason := conflict(async_scheduling, is_api_server=is_api_server, **kind):
        raise ConfigError(reason)


@functools.cache
def log_once(level: int, message: str) -> None:
    logger.log(level, "%s", message)


@contextlib.contextmanager
def _one_message(given: dict[str, Any]) -> Iterator[None]:
    """Ends the program with one message, like its argument parser, if the settings come from its command line."""
    try:
        yield
    except ConfigError as error:
        if not isinstance(given, _FromCommandLine):
            raise
        print(f"{Path(sys.argv[0]).name}: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def _naming(source: str) -> Callable[[Callable[[], Any]], Any]:
    """Returns a function that calls another one, and names the file if that refuses vLLM's speculative config."""

    def called(create: Callable[[], Any]) -> Any:
        try:
            return create()
        except Exception as error:  # a model's config may raise anything
            text = f"{show_source(source)}: proposer.config: vLLM refuses it: {show_reason(error)}"
            raise ConfigError(text) from None

    return called
