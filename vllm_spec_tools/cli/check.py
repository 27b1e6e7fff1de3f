"""`vllm-spec check`: validates configuration files, alone or for a model, and prints the resolved settings."""

import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.engine_choice import EngineChoice
    from vllm_spec_plugin.config import PluginConfig

BAD = 2
STDIN = "-"


@dataclass
class Checked:
    """The result for one file, or for the model.

    Attributes:
        features: features of the plugin that the model is served with; None without a model.
        engine: vLLM, model runner and scheduling that would serve it, and why; None without a model.
    """

    name: str
    config: "PluginConfig | None" = None
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    features: list[str] | None = None
    engine: "EngineChoice | None" = None
    unchecked: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Collects the errors and warnings of the `with` block."""
        from vllm_spec_plugin.config import ConfigError

        with _warnings(self.warnings):
            try:
                yield
            except ConfigError as error:
                self.errors.append(str(error))


def check(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Configuration files, or - for standard input; options of `vllm serve` may follow.",
            show_default=False,
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            help="Also check the files for this served model: a folder or a name on the Hugging Face hub. Its weights "
            "are not read.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Check configuration files and print the resolved settings.

    With --model, also check what a server would check at start-up: the model's layers, a draft model or heads, and
    options of `vllm serve` that follow, such as --tensor-parallel-size 2.
    Exit status: 0 valid, 2 wrong or refused.
    """
    from vllm_spec_tools.cli.check_report import as_data, print_file, print_model, print_unchecked

    end = next((i for i, word in enumerate(files) if word.startswith("-") and word != STDIN), len(files))
    names, options = list(dict.fromkeys(files[:end])), files[end:]
    if not names:
        raise typer.BadParameter("no FILE given; allowed: FILEs first, then options")
    if options and model is None:
        raise typer.BadParameter(f"{options[0]} is an option of vllm serve; allowed: with --model only")
    found = [load(name) for name in names]
    served, arguments, facts = Checked(model or ""), None, None
    if model is not None:
        with served.noting():
            arguments, facts = read_server(model, options, [each.config for each in found if each.config])
            served.unchecked = check_target(arguments)
    for each in found:
        with each.noting():
            check_file(each, arguments)
    if as_json:
        import json

        typer.echo(json.dumps(as_data(found, served if model else None, facts), indent=2))
    else:
        if facts is not None:
            print_model(served.name, facts)
            print_unchecked(served)
        for error in served.errors:
            typer.echo(error, err=True)
        for each in found:
            # No file is valid for a model that was refused.
            print_file(each, is_ok=not each.errors and not served.errors)
    if served.errors or any(each.errors for each in found):
        raise typer.Exit(BAD)


def load(name: str) -> Checked:
    """Reads a file, or standard input; its mistakes are in the result."""
    from vllm_spec_plugin.config.reading import load_config, load_stream

    checked = Checked("stdin" if name == STDIN else name)
    with checked.noting():
        checked.config = load_stream(sys.stdin.buffer, checked.name) if name == STDIN else load_config(name)
    return checked


def read_server(model: str, options: list[str], configs: "Sequence[PluginConfig]") -> tuple[Any, Any]:
    """Returns vLLM's engine arguments of the server, and its `ModelConfig`."""
    from vllm_spec_tools import serve_options

    serve_options.quiet_vllm()
    models = [name for config in configs for name in config.proposer.models]
    if not all(Path(name).is_dir() for name in (model, *models)):
        serve_options.use_cache_if_offline()
    arguments = serve_options.parse_options(model, options)
    return arguments, serve_options.read_model(arguments)


def check_target(arguments: Any) -> list[str]:
    """Checks the target's weight files by their headers, and the machine's cores; returns what is not checked.

    Raises:
        ConfigError: a file is missing or damaged, or there are too few cores.
    """
    from vllm_spec_plugin.proposers.model_source import ModelSource, UnreadableError
    from vllm_spec_plugin.proposers.weight_files import check_weights
    from vllm_spec_plugin.schema.errors import ConfigError
    from vllm_spec_tools import serve_options

    serve_options.check_cores(arguments)
    try:
        unchecked = check_weights(ModelSource(arguments.model, revision=arguments.revision), arguments.load_format)
    except UnreadableError as error:
        raise ConfigError(f"--model: {error}") from None
    always = ["whether weights and KV cache fit in memory", "weights beyond their names and sizes", "the loaded layers"]
    return [*filter(None, [unchecked]), *always]


def check_file(checked: Checked, arguments: Any) -> None:
    """Checks a file, for a server with `arguments` if given.

    Raises:
        ConfigError: the file is wrong, or refused for that server.
    """
    if checked.config is None:
        return
    if arguments is None:
        checked.config.check_proposers(None, checked.name)
        checked.unchecked = ["the model, its weights and the server's options (give --model)"]
        return
    from vllm_spec_plugin.config.settings import settings_of
    from vllm_spec_plugin.proposers.model_source import ModelSource, UnreadableError
    from vllm_spec_plugin.proposers.weight_files import check_weights
    from vllm_spec_plugin.support.refusals import features_of
    from vllm_spec_tools.serve_options import check_server

    checked.engine = check_server(arguments, settings_of(checked.config, checked.name))
    checked.features = sorted(features_of(checked.config))
    for name in checked.config.proposer.models:
        # Damaged files of a draft model or a head are refused by now.
        with contextlib.suppress(UnreadableError):
            if unchecked := check_weights(ModelSource(name), arguments.load_format):
                checked.unchecked.append(unchecked)


@contextlib.contextmanager
def _warnings(found: list[str]) -> Iterator[None]:
    """Collects the warnings that the plugin would log at start-up."""

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    logger, collector = logging.getLogger("vllm.vllm_spec_plugin"), Collector(logging.WARNING)
    before = logger.level, logger.propagate
    logger.addHandler(collector)
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(collector)
        logger.setLevel(before[0])
        logger.propagate = before[1]
