"""Creates vLLM's configuration of a server without starting it."""

import argparse
import logging
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_spec_plugin.compat import engine_args as vllm_args
from vllm_spec_plugin.compat.engine_choice import EngineChoice
from vllm_spec_plugin.config.settings import config_in
from vllm_spec_plugin.gate.ways import Part, Way, way_of
from vllm_spec_plugin.proposers.model_files import UnreadableError
from vllm_spec_plugin.proposers.model_source import ModelSource
from vllm_spec_plugin.proposers.weight_files import check_weights
from vllm_spec_plugin.register.modes import engine_choice
from vllm_spec_plugin.register.plugin import register
from vllm_spec_plugin.register.switch import reason_off
from vllm_spec_plugin.register.version import check_vllm
from vllm_spec_plugin.schema.errors import ConfigError, show_reason, show_text

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import AsyncEngineArgs, ModelConfig

_TIMEOUT_S = 5.0


def quiet_vllm() -> None:
    """Limits vLLM's log to errors; call it before vLLM is imported."""
    level = os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    # Until vLLM sets up its log, Python prints its warnings.
    logging.getLogger("vllm").setLevel(level.upper())


def use_cache_if_offline() -> None:
    """Makes vLLM and transformers use only the cache if the Hugging Face hub cannot be reached.

    Call it before they are imported. They would retry six times for each file.
    """
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=_TIMEOUT_S).close()
    except urllib.error.HTTPError:
        pass  # it answers
    except (OSError, ValueError):
        os.environ["HF_HUB_OFFLINE"] = "1"


def parse_options(model: str, options: Sequence[str]) -> argparse.Namespace:
    """Parses options of `vllm serve`.

    Raises:
        ConfigError: a file or --speculative-config is among them, or the installed vLLM is not supported.
        SystemExit: unknown option or value; vLLM's parser has printed the reason.
    """
    check_vllm()
    usage = "vllm-spec check FILE... --model MODEL [options of vllm serve]"
    parser = vllm_args.serve_parser("vllm-spec check", usage)
    arguments = parser.parse_args(["--model", model, *options])
    if arguments.model_tag is not None:
        raise ConfigError(f"got {show_text(arguments.model_tag, 200)!r} after an option; allowed: FILEs first")
    if arguments.speculative_config is not None:
        raise ConfigError("--speculative-config: given by FILE; allowed: leave it out")
    return arguments


def read_model(arguments: argparse.Namespace) -> "ModelConfig":
    """Creates vLLM's `ModelConfig` of the target.

    Raises:
        ConfigError: vLLM cannot read the model with these options.
    """
    model, shown = arguments.model, f"--model '{show_text(arguments.model, 200)}'"
    allowed = "allowed: a model's folder or a hub name"
    if Path(model).is_dir() and not (Path(model) / "config.json").is_file():
        raise ConfigError(f"{shown}: this folder has no config.json; {allowed}")
    try:
        return _engine_args(arguments).create_model_config()
    except Exception as error:  # an unknown model may raise anything
        if not Path(model).exists() and os.environ.get("HF_HUB_OFFLINE") == "1":
            reason = f"no such folder, not in the cache, and the hub cannot be reached; {allowed}"
        else:
            reason = f"vLLM refuses it with these options: {show_reason(error)}"
        raise ConfigError(f"{shown}: {reason}") from None


def check_cores(arguments: argparse.Namespace) -> None:
    """Checks that vLLM's CPU backend finds a core for each rank.

    Raises:
        ConfigError: there are fewer cores than ranks, which vLLM refuses at start.
    """
    tensor, pipeline = arguments.tensor_parallel_size, arguments.pipeline_parallel_size
    cores = len(os.sched_getaffinity(0))
    binding = os.environ.get("VLLM_CPU_OMP_THREADS_BIND", "auto")
    if vllm_args.platform() == "cpu" and binding == "auto" and tensor * pipeline > cores:
        raise ConfigError(
            f"--tensor-parallel-size {tensor}, --pipeline-parallel-size {pipeline}: got {tensor * pipeline} ranks, but "
            f"this process may use {cores} core{'s' * (cores > 1)}, and vLLM binds each rank to cores of its own; "
            f"allowed: up to {cores}, or name cores in VLLM_CPU_OMP_THREADS_BIND"
        )


def check_target(arguments: argparse.Namespace) -> list[str]:
    """Checks the target's weight files by their headers; returns what of them could not be checked.

    Raises:
        ConfigError: a file is missing or damaged.
    """
    try:
        source = ModelSource(arguments.model, revision=arguments.revision)
        return list(filter(None, [check_weights(source, arguments.load_format)]))
    except UnreadableError as error:
        raise ConfigError(f"--model: {error}") from None


def check_server(arguments: argparse.Namespace, settings: dict[str, Any]) -> tuple[EngineChoice, Way]:
    """Runs the checks that a server runs before it starts a process or reads weights.

    Returns:
        What would serve, and how it would draft.

    Raises:
        ConfigError: vLLM or the plugin refuses the server.
    """
    if reason := reason_off():
        raise ConfigError(f"{reason}: a server would serve without speculation; unset it to check a file for a server")
    engine_args = _engine_args(arguments)
    engine_args.speculative_config = settings
    try:
        served = vllm_args.create_server_config(engine_args, arguments.headless)
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(f"vLLM refuses these options: {show_reason(error)}") from None
    is_async = bool(served.scheduler_config.async_scheduling)
    config = config_in(served.additional_config)
    return engine_choice(served), way_of(config, is_v2=served.use_v2_model_runner, is_async=is_async)


def refused_ways(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Returns what the start-up gate refuses for a server, by way to draft and by part of own proposers.

    Properties of a draft model are not among them, nor those that only loaded layers show.

    Raises:
        ConfigError: vLLM refuses the server.
    """
    from vllm_spec_plugin.compat.read_facts import read_facts
    from vllm_spec_plugin.gate.refusals import refusals

    try:
        config = vllm_args.create_server_config(_engine_args(arguments), arguments.headless)
    except Exception as error:
        raise ConfigError(f"vLLM refuses these options: {show_reason(error)}") from None
    facts = read_facts(config, None)
    asked = {way: (way, frozenset[Part]()) for way in Way} | {part: (Way.OWN, frozenset({part})) for part in Part}
    return {name: list(map(str, refusals(way, parts, facts))) for name, (way, parts) in asked.items()}


def _engine_args(arguments: argparse.Namespace) -> "AsyncEngineArgs":
    register()
    return vllm_args.engine_args_of(arguments)
