"""A report and where it is written."""

import base64
import html
import importlib.util
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from markdown_it import MarkdownIt
from rich.console import Console
from rich.text import Text

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.report.chart import Chart, picture
from vllm_spec_tools.report.measurements import Measurements
from vllm_spec_tools.report.provenance import command_line, machine_text, models_text
from vllm_spec_tools.report.table import Table, escape_markdown

SCHEMA = 5
"""Version of the JSON: since 5 `low` and `high` are the range of rounds, before they were quartiles."""

_WIDEST = 1000  # characters of a table in a file or pipe
_STYLE = (
    "body{font:15px/1.45 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem;color:#111}"
    "table{border-collapse:collapse;margin:.5rem 0;display:block;overflow-x:auto}"
    "th,td{padding:.2rem .6rem;border-bottom:1px solid #ccc;text-align:left}"
    "img{max-width:100%}pre{background:#f4f4f4;padding:.6rem;white-space:pre-wrap}"
)


@dataclass(frozen=True)
class Report:
    """Findings of a tool.

    Attributes:
        notes: how it was measured and the limits, after the tables.
        problems: reasons not to trust it.
    """

    kind: str
    title: str
    provenance: Mapping[str, Any]
    conclusion: Sequence[str] = ()
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    notes: Sequence[str] = ()
    problems: Sequence[str] = ()
    measurements: Measurements = field(default_factory=Measurements)
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Pages:
    """Files of a report without pictures, as a group of a command's options; None is not written."""

    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all figures to this file.")] = None
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as Markdown.")] = None
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as one HTML file.")] = None


@dataclass(frozen=True)
class Files(Pages):
    """Files of a report with measurements and a picture."""

    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a row per arm, workload, level, round and metric.")
    ] = None
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the figures into this file.")] = None


def check_files(files: Pages, option: str = "--{}") -> None:
    """Checks that files can be written, before anything is measured.

    Args:
        option: name of the option of each format, with {} for its name.

    Raises:
        UserError: one has no folder, is a folder, or needs a package that is not installed.
    """
    for name, path in vars(files).items():
        check_output(option.format(name), path)
        has_picture = path is not None and name in ("png", "html") and isinstance(files, Files)
        if has_picture and importlib.util.find_spec("matplotlib") is None:
            raise UserError(f"{option.format(name)} needs matplotlib: pip install 'vllm-spec-tools[plot]'")


def check_output(option: str, path: Path | None) -> None:
    """Checks that a file can be written; None is no file.

    Raises:
        UserError: it has no folder, or is one.
    """
    if path is not None and not path.absolute().parent.is_dir():
        raise UserError(f"{option} {path}: there is no folder {path.absolute().parent}")
    if path is not None and path.is_dir():
        raise UserError(f"{option} {path}: is a folder; allowed: a file's name")


def write(
    report: Report,
    *,
    terminal: Console | None = None,
    markdown: Path | None = None,
    json: Path | None = None,
    csv: Path | None = None,
    png: Path | None = None,
    html: Path | None = None,
) -> None:
    """Writes a report to all requested files.

    Raises:
        OSError: a file cannot be written.
    """
    if terminal is not None:
        _show(report, terminal)
    if json is not None:
        json.write_text(as_json(report), encoding="utf-8")
    if csv is not None:
        csv.write_text(report.measurements.as_csv(), encoding="utf-8")
    image = picture(report.charts, report.title, _where(report)) if report.charts and (png or html) else None
    if png is not None and image is not None:
        png.write_bytes(image)
    if markdown is not None:
        address = None if png is None or image is None else os.path.relpath(png, markdown.parent)
        markdown.write_text(as_markdown(report, address), encoding="utf-8")
    if html is not None:
        html.write_text(as_html(report, image), encoding="utf-8")


def as_json(report: Report) -> str:
    """Returns every value with its provenance."""
    values = {
        "schema": SCHEMA,
        "report": report.kind,
        "title": report.title,
        "provenance": dict(report.provenance),
        "conclusion": list(report.conclusion),
        "problems": list(report.problems),
        **report.data,
        "medians": report.measurements.summary(),
        "measurements": [row._asdict() for row in report.measurements.rows()],
    }
    return json.dumps(values, indent=1) + "\n"


def as_markdown(report: Report, picture: str | None) -> str:
    """Returns the page: conclusion, picture, tables, how it was measured.

    Args:
        picture: address of the PNG from the page; None is none.
    """
    where = filter(None, [models_text(report.provenance)])
    parts = [f"# {report.title}", *map(escape_markdown, where)]
    parts += [f"**{escape_markdown(problem)}**" for problem in report.problems]
    parts += map(escape_markdown, report.conclusion)
    if picture is not None:
        parts.append(f"![{report.title}]({picture})")
    parts += [table.markdown() for table in report.tables]
    parts += [
        *map(escape_markdown, report.notes),
        f"```\n{command_line(report.provenance)}\n```",
        machine_text(report.provenance),
    ]
    return "\n\n".join(parts) + "\n"


def as_html(report: Report, image: bytes | None) -> str:
    """Returns the page as one self-contained HTML file: no scripts, nothing from the net, all texts escaped.

    Args:
        image: a PNG; None is none.
    """
    address = None if image is None else f"data:image/png;base64,{base64.b64encode(image).decode()}"
    text = as_markdown(report, address) + f"\nReport {report.kind}, schema {SCHEMA}.\n"
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    head = "<meta charset=utf-8><meta name=viewport content='width=device-width'>"
    head += f"<title>{html.escape(report.title)}</title><style>{_STYLE}</style>"
    return f"<!doctype html>\n<html lang=en><head>{head}</head>\n<body>\n{body}</body></html>\n"


def _show(report: Report, console: Console) -> None:
    console.print(Text(report.title, style="bold"), Text(_where(report), style="dim"), sep="\n")
    for problem in report.problems:
        console.print(Text(problem, style="bold red"))
    for text in report.conclusion:
        console.print(Text(text))
    # A file or a pipe has no width: tables are not folded there.
    wide = console if console.is_terminal else Console(file=console.file, width=_WIDEST, emoji=False)
    for table in report.tables:
        console.print()
        for part in table.rich(wide.width):
            wide.print(part)
        if table.note:
            console.print(Text(table.note, style="dim"))
    for note in report.notes:
        console.print()
        console.print(Text(note))


def _where(report: Report) -> str:
    return "; ".join(filter(None, (models_text(report.provenance), machine_text(report.provenance, short=True))))
