"""`vllm-spec check`: what a configuration file means, or what is wrong with it, for a server or by itself."""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pydantic import BaseModel

    from vllm_spec_plugin.config import PluginConfig

BAD = 2


def check(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="Configuration files; behind them, options of `vllm serve`.", show_default=False
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            help="Also check whether this model is served with them, a folder or a name on the Hugging Face hub. Its "
            "weights are not read.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Check configuration files and print what they come to.

    With --model, also whether the model is served exactly, as a server would find at its start: its layers, a draft
    model or heads, and the options of `vllm serve` that are given, such as --tensor-parallel-size 2.
    Exit status 0 if all is well, 2 if anything is wrong or refused.
    """
    from vllm_spec_plugin.config import ConfigError, load_config

    end = next((place for place, word in enumerate(files) if word.startswith("-")), len(files))
    paths, options = [Path(file) for file in files[:end]], files[end:]
    if not paths:
        raise typer.BadParameter("no FILE given; allowed: FILEs first, then options")
    if options and model is None:
        raise typer.BadParameter(f"{options[0]} is an option of vllm serve; allowed: with --model only")
    failed, arguments, configs = False, None, {}

    @contextlib.contextmanager
    def mistakes_shown() -> Iterator[None]:
        nonlocal failed
        try:
            yield
        except ConfigError as error:
            typer.echo(str(error), err=True)
            failed = True

    for path in paths:
        with mistakes_shown():
            configs[path] = load_config(path)
    with mistakes_shown():
        if model is not None:
            arguments = _server(model, options, list(configs.values()))
    for path, config in configs.items():
        with mistakes_shown(), _warnings_shown():
            _check_file(path, config, arguments)
    if failed:
        raise typer.Exit(BAD)


def _server(model: str, options: list[str], configs: "Sequence[PluginConfig]") -> Any:
    """vLLM's arguments for the server, its model looked at and printed."""
    from vllm_spec_plugin.register import serve_options

    serve_options.quiet_vllm()
    models = [name for config in configs for name in config.proposer.models]
    if not all(Path(name).is_dir() for name in (model, *models)):
        serve_options.use_cache_if_offline()
    arguments = serve_options.parse_options(model, options)
    _print_model(model, serve_options.read_model(arguments))
    return arguments


def _check_file(path: Path, config: "PluginConfig", arguments: Any) -> None:
    """Checks a file, for the server with `arguments` where there is one, and prints what it comes to.

    Raises:
        ConfigError: something is wrong.
    """
    if arguments is None:
        config.check_proposers(None, str(path))
        _print_settings(path, config)
        return
    from vllm_spec_plugin.config.settings import settings_of
    from vllm_spec_plugin.register.serve_options import check_server
    from vllm_spec_plugin.support.rules import features_of

    check_server(arguments, settings_of(config, str(path)))
    _print_settings(path, config)
    typer.echo(f"  served with this model: {', '.join(sorted(features_of(config)))}")


@contextlib.contextmanager
def _warnings_shown() -> Iterator[None]:
    """Prints what the plugin would log at a server's start."""

    class Printer(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            typer.echo(f"warning: {record.getMessage()}", err=True)

    logger, printer = logging.getLogger("vllm.vllm_spec_plugin"), Printer(logging.WARNING)
    before = logger.level, logger.propagate
    logger.addHandler(printer)
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(printer)
        logger.setLevel(before[0])
        logger.propagate = before[1]


def _print_model(name: str, model_config: Any) -> None:
    from vllm_spec_plugin.schema.errors import show_source

    typer.echo(f"{show_source(name)}:")
    rows = [
        ("architecture", model_config.architecture),
        ("vocabulary", f"{model_config.get_vocab_size():,} tokens"),
        ("context", f"{model_config.max_model_len:,} tokens"),
    ]
    _print_table([(key, value, "") for key, value in rows])


def _print_settings(path: Path, config: "PluginConfig") -> None:
    from vllm_spec_plugin.schema.errors import show_source

    typer.echo(f"{show_source(str(path))}: OK")
    _print_table(list(_settings(config, "", given=True)))


def _settings(section: "BaseModel", prefix: str, *, given: bool) -> Iterator[tuple[str, str, str]]:
    from pydantic import BaseModel

    for key, field in type(section).model_fields.items():
        value = getattr(section, key)
        is_given = given and key in section.model_fields_set
        name = f"{prefix}{key}"
        if isinstance(value, BaseModel):
            yield from _settings(value, f"{name}.", given=is_given)
            continue
        if isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            for place, item in enumerate(value):
                yield from _settings(item, f"{name}[{place}].", given=is_given)
            continue
        meanings = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        shown = str(meanings.get("null", "not used") if value is None else value)
        if isinstance(value, bool):
            shown = str(value).lower()  # YAML's word
        if value == 0 and "zero" in meanings:
            shown += f" ({meanings['zero']})"
        if name == "verification.lenience":
            shown += " (exact)" if value == 1 else " (LOSSY: the output differs from the model's own)"
        yield name, shown, "given" if is_given else "default"


def _print_table(rows: list[tuple[str, str, str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True)
    for key, value, origin in rows:
        style = "bold red" if "LOSSY" in value else "bold" if origin == "given" else ""
        table.add_row(Text(f"  {key}"), Text(value, style=style), Text(origin, style="dim"))
    Console().print(table)
