"""vLLM's engine arguments: the options of `vllm serve`, and the configuration made from them."""

import argparse
import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from vllm_spec_plugin.compat.patching import wrap

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import AsyncEngineArgs, EngineArgs, VllmConfig

# Gets vLLM's parser of an option's values, and a value; raises `argparse.ArgumentTypeError`.
ParseOption = Callable[[Callable[[str], Any], str], Any]


def patch(
    parse_speculative: ParseOption,
    parse_additional: ParseOption,
    configure: "Callable[[EngineArgs, Callable[[], VllmConfig], bool], VllmConfig]",
) -> None:
    """Makes `--speculative-config` accept paths, and lets the plugin create engine configurations.

    Args:
        parse_speculative: parses a value of `--speculative-config`.
        parse_additional: parses a value of `--additional-config`.
        configure: gets the `EngineArgs`, vLLM's function that makes a `VllmConfig` from them, and whether it is for
            vLLM's OpenAI server; returns a `VllmConfig`.
    """
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext

    parsers = {"--speculative-config": parse_speculative, "--additional-config": parse_additional}

    def accept_paths(original: Callable[..., Any]) -> Callable[..., Any]:
        def add_cli_args(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
            parser = original(parser)
            # A vLLM without an option keeps its own ways, and its own message for a path.
            for action in parser._actions:
                for option in parsers.keys() & set(action.option_strings):
                    parse: Any = action.type
                    action.type = functools.partial(parsers[option], parse)
                    if option == "--speculative-config":
                        action.help = f"{action.help or ''}\nOr the path of a vllm_spec_plugin plugin.yaml."
            return parser

        return add_cli_args

    def configured(original: Callable[..., Any]) -> Callable[..., Any]:
        def create_engine_config(
            self: EngineArgs, usage_context: UsageContext | None = None, *args: Any, **kwargs: Any
        ) -> "VllmConfig":
            create = functools.partial(original, self, usage_context, *args, **kwargs)
            return configure(self, create, usage_context is UsageContext.OPENAI_API_SERVER)

        return create_engine_config

    wrap(EngineArgs, "add_cli_args", accept_paths)
    wrap(EngineArgs, "create_engine_config", configured)


@contextlib.contextmanager
def speculative_config_made_by(
    call: Callable[[Callable[[], Any]], Any] | None, engine_args: "EngineArgs"
) -> Iterator[None]:
    """Lets a function call vLLM's own that makes the `SpeculativeConfig`, within the context; None changes nothing."""
    if call is None:
        yield
        return
    original, own = engine_args.create_speculative_config, vars(engine_args)
    own["create_speculative_config"] = lambda *args, **kwargs: call(functools.partial(original, *args, **kwargs))
    try:
        yield
    finally:
        del own["create_speculative_config"]


def platform() -> str | None:
    """Returns `cpu` or `cuda`; None on other platforms."""
    from vllm.platforms import current_platform

    return "cpu" if current_platform.is_cpu() else "cuda" if current_platform.is_cuda() else None


def quantization_methods() -> tuple[str, ...]:
    """Returns the names of vLLM's quantization methods."""
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS

    return tuple(QUANTIZATION_METHODS)


def serve_parser(prog: str, usage: str) -> argparse.ArgumentParser:
    """Creates the parser of `vllm serve` for another program."""
    # vLLM 0.33 moves the function to another module; both versions have it here.
    from vllm.entrypoints.cli.serve import make_arg_parser  # type: ignore[attr-defined]
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    return make_arg_parser(FlexibleArgumentParser(prog=prog, usage=usage))


def parse_engine_options(words: Sequence[str]) -> dict[str, Any]:
    """Parses options of `vllm serve` that the engine has; returns the given ones as keyword arguments of `vllm.LLM`.

    Raises:
        ValueError: vLLM's parser refuses one; the message is its own.
    """
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    class Parser(FlexibleArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise ValueError(message)

    parser = EngineArgs.add_cli_args(Parser(add_help=False, allow_abbrev=False))
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    return vars(parser.parse_args(list(words)))


def device_memory() -> tuple[str, int]:
    """Returns a word for the devices, and the bytes of memory of each: of a CPU what is available, of a GPU all."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return "GPU", current_platform.get_device_total_memory()
    from vllm.utils.cpu_resource_utils import get_memory_node_info

    return "CPU", get_memory_node_info().available_memory


def engine_args_of(arguments: argparse.Namespace) -> "AsyncEngineArgs":
    """Creates `AsyncEngineArgs` from the result of the parser of `vllm serve`."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    return AsyncEngineArgs.from_cli_args(arguments)


def create_server_config(engine_args: "EngineArgs", headless: bool) -> "VllmConfig":
    """Creates the `VllmConfig` of an OpenAI server."""
    from vllm.usage.usage_lib import UsageContext

    return engine_args.create_engine_config(UsageContext.OPENAI_API_SERVER, headless=headless)
