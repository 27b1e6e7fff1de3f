"""Prints the results of `vllm-spec check`, as text or as JSON."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import typer
from pydantic import BaseModel

from vllm_spec_plugin.schema.errors import show_source

if TYPE_CHECKING:
    from vllm_spec_tools.cli.check import Checked

SCHEMA = 1


def as_data(files: "Sequence[Checked]", served: "Checked | None", facts: Any) -> dict[str, Any]:
    """Builds a JSON object of all results.

    Args:
        served: result for the model; None without `--model`.
        facts: vLLM's `ModelConfig`; None if it was not read.
    """
    model: dict[str, Any] | None = None
    if served is not None:
        model = {"name": served.name, "errors": served.errors, "not_checked": served.unchecked}
        if facts is not None:
            model |= {
                "architecture": facts.architecture,
                "vocab_size": facts.get_vocab_size(),
                "max_model_len": facts.max_model_len,
            }
    is_ok = not any(each.errors for each in files) and not (served and served.errors)
    return {
        "schema": SCHEMA,
        "ok": is_ok,
        "model": model,
        "files": [
            {
                "file": each.name,
                "ok": not each.errors and each.config is not None,
                "errors": each.errors,
                "warnings": each.warnings,
                "config": each.config and each.config.model_dump(mode="json"),
                "served_with": each.features,
                "engine": each.engine and each.engine._asdict(),
                "not_checked": each.unchecked,
            }
            for each in files
        ],
    }


def print_model(name: str, facts: Any) -> None:
    """Prints the model's properties as vLLM reads them."""
    typer.echo(f"{show_source(name)}:")
    rows = [
        ("architecture", facts.architecture),
        ("vocabulary", f"{facts.get_vocab_size():,} tokens"),
        ("context", f"{facts.max_model_len:,} tokens"),
    ]
    print_table([(key, value, "") for key, value in rows])


def print_file(checked: "Checked", *, is_ok: bool) -> None:
    """Prints a file's errors, or every setting and its origin: given or default."""
    for warning in checked.warnings:
        typer.echo(f"warning: {warning}", err=True)
    for error in checked.errors:
        typer.echo(error, err=True)
    if not is_ok or checked.config is None:
        return
    typer.echo(f"{show_source(checked.name)}: OK")
    print_table(list(_settings(checked.config, "", given=True)))
    if checked.features is not None:
        typer.echo(f"  served by {checked.engine}")
        typer.echo(f"  served with this model: {', '.join(checked.features)}")
    print_unchecked(checked)


def print_unchecked(checked: "Checked") -> None:
    """Prints what was not checked, if there is anything."""
    if checked.unchecked:
        typer.echo(f"  not checked: {'; '.join(checked.unchecked)}")


def _settings(section: BaseModel, prefix: str, *, given: bool) -> Iterator[tuple[str, str, str]]:
    for key, field in type(section).model_fields.items():
        value = getattr(section, key)
        is_given = given and key in section.model_fields_set
        name = f"{prefix}{key}"
        if isinstance(value, BaseModel):
            yield from _settings(value, f"{name}.", given=is_given)
            continue
        if isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            for i, item in enumerate(value):
                yield from _settings(item, f"{name}[{i}].", given=is_given)
            continue
        meanings = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
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
