"""Where the report goes: the terminal and files."""

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from vllm_spec_plugin.tools.bench.load.picture import draw
from vllm_spec_plugin.tools.bench.load.report.as_json import to_json
from vllm_spec_plugin.tools.bench.load.report.markdown import to_markdown
from vllm_spec_plugin.tools.bench.load.report.sentences import notes, sentences
from vllm_spec_plugin.tools.bench.load.report.tables import tables
from vllm_spec_plugin.tools.bench.load.sweep import SweepResults
from vllm_spec_plugin.tools.bench.running import show_report
from vllm_spec_plugin.tools.serving import runs_on_cpu


@dataclass(frozen=True)
class Files:
    """Files to write; None is not asked for."""

    json: Path | None = None
    markdown: Path | None = None
    png: Path | None = None


def show(results: SweepResults, console: Console) -> None:
    """Prints everything."""
    show_report(tables(results), (*sentences(results), *notes(results, runs_on_cpu())), results.others, console)


def write(results: SweepResults, origin: dict[str, Any], files: Files) -> None:
    """Writes the files.

    Args:
        results: of the sweep.
        origin: what `bench.provenance.provenance` gives, and more; "target" among it.
        files: where.

    Raises:
        OSError: one cannot be written.
    """
    if files.json is not None:
        files.json.write_text(json.dumps(to_json(results, origin), indent=1) + "\n", encoding="utf-8")
    if files.png is not None:
        draw(results, f"Speculation on {Path(origin['target']).name}", files.png)
    if files.markdown is not None:
        page = to_markdown(results, origin, runs_on_cpu(), picture_address(files.png, files.markdown))
        files.markdown.write_text(page, encoding="utf-8")


def picture_address(png: Path | None, page: Path) -> str | None:
    """The picture's address from the page; its whole path if it is not below the page's folder."""
    if png is None:
        return None
    with contextlib.suppress(ValueError):
        return png.absolute().relative_to(page.absolute().parent).as_posix()
    return str(png)
