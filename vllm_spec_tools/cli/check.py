"""`vllm-spec check`: validates configuration files, alone or for a model, and prints the resolved settings."""

import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vllm_spec_plugin.schema.errors import show_source

if TYPE_CHECKING:
    from pydantic import BaseModel

    from vllm_spec_plugin.compat.engine_choice import EngineChoice
    from vllm_spec_plugin.config import PluginConfig

BAD = 2
STDIN = "-"
SCHEMA = 1
# Of a model that was checked.
_UNCHECKED = ("whether weights and KV cache fit in memory", "weights beyond their names and sizes", "the loaded layers")


@dataclass
class Checked:
    """The result for one file, or for the model.

    Attributes:
        drafting: the way to draft, and its parts with further rules; None without a model.
        engine: vLLM, model runner and scheduling that would serve it, and why; None without a model.
    """

    name: str
    config: "PluginConfig | None" = None
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    drafting: list[str] | None = None
    engine: "EngineChoice | None" = None
    unchecked: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Collects the errors of the `with` block, and the warnings that the plugin would log at start-up."""
        from vllm_spec_plugin.config import ConfigError

        collector, logger = logging.Handler(logging.WARNING), logging.getLogger("vllm.vllm_spec_plugin")
        collector.emit = lambda record: self.warnings.append(record.getMessage())  # type: ignore[method-assign]
        before = logger.level, logger.propagate
        logger.addHandler(collector)
        logger.setLevel(logging.WARNING)
        logger.propagate = False
        try:
            yield
        except ConfigError as error:
            self.errors.append(str(error))
        finally:
            logger.removeHandler(collector)
            logger.setLevel(before[0])
            logger.propagate = before[1]


@dataclass
class Inspection:
    """Files and, if one is given, a model.

    Attributes:
        served: result for the model; None if none is given.
        arguments: vLLM's engine arguments of the server; None if it was not read.
        facts: vLLM's `ModelConfig`; None if it was not read.
    """

    files: list[Checked]
    served: Checked | None = None
    arguments: Any = None
    facts: Any = None

    @property
    def is_ok(self) -> bool:
        """Whether there are no errors."""
        return not any(each.errors for each in (*self.files, *filter(None, [self.served])))


def inspect(names: Sequence[str], model: str | None, options: Sequence[str]) -> Inspection:
    """Checks files, alone or for a served model.

    Args:
        options: of `vllm serve`.

    Raises:
        BadParameter: there are options without a model.
    """
    from vllm_spec_tools.engines import serve_options

    if options and model is None:
        raise typer.BadParameter(f"{options[0]} is an option of vllm serve; allowed: with --model only")
    found = Inspection([_load(name) for name in names])
    if model is not None:
        found.served = Checked(model)
        with found.served.noting():
            serve_options.quiet_vllm()
            models = [name for each in found.files if each.config for name in each.config.proposer.models]
            if not all(Path(name).is_dir() for name in (model, *models)):
                serve_options.use_cache_if_offline()
            arguments = serve_options.parse_options(model, options)
            found.facts = serve_options.read_model(arguments)
            found.arguments = arguments
            serve_options.check_cores(arguments)
            found.served.unchecked = [*serve_options.check_target(arguments), *_UNCHECKED]
    for each in found.files:
        with each.noting():
            _check_file(each, found.arguments)
    return found


def _load(name: str) -> Checked:
    """Reads a file, or standard input; its mistakes are in the result."""
    from vllm_spec_plugin.config.loading import load_config, load_stream

    checked = Checked("stdin" if name == STDIN else name)
    with checked.noting():
        checked.config = load_stream(sys.stdin.buffer, checked.name) if name == STDIN else load_config(name)
    return checked


def _check_file(checked: Checked, arguments: Any) -> None:
    """Checks a file, for a server with `arguments` if given; raises ConfigError if it is wrong or refused."""
    from vllm_spec_tools.vllm_json import check_native

    if checked.config is None:
        return
    check_native(checked.config, checked.name)
    if arguments is None:
        checked.config.check_proposers(None, checked.name)
        checked.unchecked = ["the model, its weights and the server's options (give --model)"]
        return
    from vllm_spec_plugin.config.settings import settings_of
    from vllm_spec_plugin.gate.ways import parts_of
    from vllm_spec_plugin.proposers.model_files import UnreadableError
    from vllm_spec_plugin.proposers.model_source import ModelSource
    from vllm_spec_plugin.proposers.weight_files import check_weights
    from vllm_spec_tools.engines.serve_options import check_server

    checked.engine, way = check_server(arguments, settings_of(checked.config, checked.name))
    checked.drafting = [way, *sorted(parts_of(checked.config))]
    for name in checked.config.proposer.models:
        # Damaged files of a draft model or a head are refused by now.
        with contextlib.suppress(UnreadableError):
            checked.unchecked += filter(None, [check_weights(ModelSource(name), arguments.load_format)])


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
    end = next((i for i, word in enumerate(files) if word.startswith("-") and word != STDIN), len(files))
    if not end:
        raise typer.BadParameter("no FILE given; allowed: FILEs first, then options")
    found = inspect(list(dict.fromkeys(files[:end])), model, files[end:])
    if as_json:
        import json

        typer.echo(json.dumps(_as_data(found), indent=2))
    else:
        if found.served is not None:
            _print_model(found.served, found.facts)
        for each in found.files:
            # No file is valid for a model that was refused.
            _print_file(each, is_ok=not each.errors and not (found.served and found.served.errors))
    if not found.is_ok:
        raise typer.Exit(BAD)


def _as_data(found: Inspection) -> dict[str, Any]:
    served, facts = found.served, found.facts
    model = served and {"name": served.name, "errors": served.errors, "not_checked": served.unchecked}
    if model and facts is not None:
        model |= {
            "architecture": facts.architecture,
            "vocab_size": facts.get_vocab_size(),
            "max_model_len": facts.max_model_len,
        }
    files = [
        {
            "file": each.name,
            "ok": not each.errors and each.config is not None,
            "errors": each.errors,
            "warnings": each.warnings,
            "config": each.config and each.config.model_dump(mode="json"),
            "drafting": each.drafting,
            "engine": each.engine and each.engine._asdict(),
            "not_checked": each.unchecked,
        }
        for each in found.files
    ]
    return {"schema": SCHEMA, "ok": found.is_ok, "model": model, "files": files}


def _print_model(served: Checked, facts: Any) -> None:
    """Prints the model's properties as vLLM reads them, and errors."""
    if facts is not None:
        typer.echo(f"{show_source(served.name)}:")
        vocabulary, context = f"{facts.get_vocab_size():,} tokens", f"{facts.max_model_len:,} tokens"
        rows = (("architecture", facts.architecture), ("vocabulary", vocabulary), ("context", context))
        print_table([(*row, "") for row in rows])
        _print_unchecked(served)
    for error in served.errors:
        typer.echo(error, err=True)


def _print_file(checked: Checked, *, is_ok: bool) -> None:
    """Prints a file's errors, or every setting and its origin: given or default."""
    for message in (*(f"warning: {warning}" for warning in checked.warnings), *checked.errors):
        typer.echo(message, err=True)
    if not is_ok or checked.config is None:
        return
    typer.echo(f"{show_source(checked.name)}: OK")
    print_table(list(_settings(checked.config, "", given=True)))
    if checked.drafting is not None:
        typer.echo(f"  served by {checked.engine}")
        typer.echo(f"  drafting: {', with '.join(checked.drafting)}")
    _print_unchecked(checked)


def _print_unchecked(checked: Checked) -> None:
    if checked.unchecked:
        typer.echo(f"  not checked: {'; '.join(checked.unchecked)}")


def _settings(section: "BaseModel", prefix: str, *, given: bool) -> Iterator[tuple[str, str, str]]:
    from pydantic import BaseModel

    for key, info in type(section).model_fields.items():
        value, name = getattr(section, key), f"{prefix}{key}"
        is_given = given and key in section.model_fields_set
        if isinstance(value, BaseModel):
            yield from _settings(value, f"{name}.", given=is_given)
            continue
        if isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            for i, item in enumerate(value):
                yield from _settings(item, f"{name}[{i}].", given=is_given)
            continue
        meanings = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
        shown = str(meanings.get("null", "not used") if value is None else value)
        if isinstance(value, bool):
            shown = str(value).lower()  # YAML's word
        if value == 0 and "zero" in meanings:
            shown += f" ({meanings['zero']})"
        if name == "verification.lenience":
            shown += " (exact)" if value == 1 else " (LOSSY: outputs do not have the model's distribution)"
        yield name, shown, "given" if is_given else "default"


def print_table(rows: list[tuple[str, str, str]]) -> None:
    """Prints rows of a name, a value and its origin."""
    from rich.table import Table
    from rich.text import Text

    from vllm_spec_tools.cli.errors import new_console

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True)
    for key, value, origin in rows:
        style = "bold red" if "LOSSY" in value else "bold" if origin == "given" else ""
        table.add_row(Text(f"  {key}"), Text(value, style=style), Text(origin, style="dim"))
    new_console().print(table)
