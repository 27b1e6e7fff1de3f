"""Where the report goes: the terminal and files."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from vllm_spec_plugin.tools.bench.noise_gate import disturbance_text
from vllm_spec_plugin.tools.planner.plugin_yaml import plugin_yaml
from vllm_spec_plugin.tools.planner.report.data import to_json
from vllm_spec_plugin.tools.planner.report.page import remarks, sections, to_markdown
from vllm_spec_plugin.tools.planner.report.picture import draw
from vllm_spec_plugin.tools.planner.results import Results
from vllm_spec_plugin.tools.report.output import picture_address
from vllm_spec_plugin.tools.report.table import new_table

_WORDS = ("", "proposer", "workload", "alpha by place, %")


@dataclass(frozen=True)
class Files:
    """Files to write; None is not asked for.

    Attributes:
        out: the recommended plugin.yaml.
        out_anyway: also where the answer is to leave it off.
        json: everything.
        markdown: the report.
        png: the picture.
    """

    out: Path | None = None
    out_anyway: bool = False
    json: Path | None = None
    markdown: Path | None = None
    png: Path | None = None


def show(results: Results, console: Console) -> None:
    """Prints it: the answer first."""
    verdict = results.verdict
    console.print(escape(verdict.answer), style="bold green" if verdict.is_on else "bold yellow", soft_wrap=True)
    for text in remarks(results):
        console.print(escape(text), highlight=False)
    for section in sections(results):
        table = new_table(escape(section.title), section.header, _WORDS)
        for row in section.rows:
            table.add_row(*map(escape, row))
        console.print()
        console.print(table)
        if section.note:
            console.print(escape(section.note), style="dim", highlight=False)
    disturbed = disturbance_text(results.others)
    if disturbed is not None:
        console.print()
        console.print(disturbed)


def write(results: Results, origin: dict[str, Any], files: Files, console: Console) -> None:
    """Writes the files.

    Args:
        results: of the plan.
        origin: what `report.provenance.provenance` gives, and "model", what is served.
        files: which.
        console: where it is told what became of the plugin.yaml.

    Raises:
        OSError: one cannot be written.
    """
    if files.json is not None:
        files.json.write_text(json.dumps(to_json(results, origin), indent=1) + "\n", encoding="utf-8")
    if files.png is not None:
        draw(results, f"Speculation plan, {Path(origin['model']).name}", files.png)
    if files.markdown is not None:
        page = to_markdown(results, origin, picture_address(files.png, files.markdown))
        files.markdown.write_text(page, encoding="utf-8")
    if files.out is not None:
        console.print()
        console.print(escape(_write_plugin_yaml(results, origin, files.out, files.out_anyway)), soft_wrap=True)


def _write_plugin_yaml(results: Results, origin: dict[str, Any], path: Path, anyway: bool) -> str:
    """Writes it where there is something to switch on; what became of it."""
    if not results.choice.tokens:
        return f"{path} is not written: nothing that was considered would draft."
    if not (results.verdict.is_on or anyway):
        return f"{path} is not written, as the answer is to leave it off; --out-anyway writes it."
    path.write_text(plugin_yaml(results.choice, results.verdict, origin), encoding="utf-8")
    return f"{path} is written: vllm serve {origin['model']} --speculative-config {path}"
