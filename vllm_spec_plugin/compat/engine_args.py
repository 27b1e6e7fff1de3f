"""vLLM's engine arguments: its options of `vllm serve`, and what it makes of them."""

import functools
from collections.abc import Callable
from typing import Any

from vllm_spec_plugin.compat.patching import wrap


def patch(parse_path: Callable[[str], Any], configure: Callable[[Any, Callable[[], Any]], Any]) -> None:
    """Lets `--speculative-config` take more than JSON, and has engine configurations made by the plugin.

    Args:
        parse_path: the setting for a value of the option that is not JSON; raises `argparse.ArgumentTypeError`.
        configure: gets the `EngineArgs` and vLLM's own way from them to a `VllmConfig`; returns one.
    """
    from vllm.engine.arg_utils import EngineArgs

    def accept_paths(original: Callable[..., Any]) -> Callable[..., Any]:
        def add_cli_args(parser: Any) -> Any:
            parser = original(parser)
            # A vLLM without the option keeps its own ways, and its own message for a path.
            action = next((a for a in parser._actions if "--speculative-config" in a.option_strings), None)
            if action is not None:
                action.type = path_or_json(action.type, parse_path)
                action.help = f"{action.help or ''}\nOr the path of a vllm_spec_plugin plugin.yaml."
            return parser

        return add_cli_args

    def configured(original: Callable[..., Any]) -> Callable[..., Any]:
        def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
            return configure(self, functools.partial(original, self, *args, **kwargs))

        return create_engine_config

    wrap(EngineArgs, "add_cli_args", accept_paths)
    wrap(EngineArgs, "create_engine_config", configured)


def path_or_json(parse_json: Callable[[str], Any], parse_path: Callable[[str], Any]) -> Callable[[str], Any]:
    """The type of the option: vLLM's for JSON, `parse_path` for the rest."""

    def speculative_config(value: str) -> Any:
        is_json = value in ("", "None") or value.lstrip().startswith("{")
        return parse_json(value) if is_json else parse_path(value)

    return speculative_config


def platform() -> str | None:
    """`cpu` or `cuda`; None is another one."""
    from vllm.platforms import current_platform

    return "cpu" if current_platform.is_cpu() else "cuda" if current_platform.is_cuda() else None


def quantization_methods() -> tuple[str, ...]:
    """The names of quantizations that vLLM knows."""
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS

    return tuple(QUANTIZATION_METHODS)


def serve_parser(prog: str, usage: str) -> Any:
    """The parser of `vllm serve` for another program."""
    # vLLM 0.33 moves the function to another module; both versions have it here.
    from vllm.entrypoints.cli.serve import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    return make_arg_parser(FlexibleArgumentParser(prog=prog, usage=usage))


def engine_args_of(arguments: Any) -> Any:
    """`AsyncEngineArgs` of what the parser of `vllm serve` returned."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    return AsyncEngineArgs.from_cli_args(arguments)


def create_server_config(engine_args: Any, headless: bool) -> Any:
    """The `VllmConfig` of an OpenAI server."""
    from vllm.usage.usage_lib import UsageContext

    return engine_args.create_engine_config(UsageContext.OPENAI_API_SERVER, headless=headless)
