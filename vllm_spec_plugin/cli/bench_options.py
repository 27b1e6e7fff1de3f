"""Options of several benchmarks."""

from pathlib import Path
from typing import Annotated

import typer

Arms = Annotated[
    list[str] | None,
    typer.Option(
        "--arm",
        metavar="ARM",
        help="Arm to compare; repeatable. none (always included), optimal, fixed:0,2,4 (one arm per K; 0 is the plugin "
        "with drafts off), stock:draft_model or stock:ngram (vLLM's own with K = 4; stock:ngram:8 sets K), a "
        "plugin.yaml, or without:MECHANISM (of `bench replay --without`).",
    ),
]
Target = Annotated[str | None, typer.Option(help="Folder or hub name of the target. [default: the bundled one]")]
Draft = Annotated[
    str | None,
    typer.Option(
        help="Folder or hub name of the draft model: of stock:draft_model, and without --proposer of optimal and "
        "fixed. [default: the proposer's, or the bundled one]"
    ),
]
Proposer = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A plugin.yaml whose proposer optimal and fixed draft with; its draft_length is ignored. "
        "[default: the draft model]",
    ),
]
OptimalTokens = Annotated[int, typer.Option(min=1, help="Most tokens that optimal drafts.")]
Rounds = Annotated[int, typer.Option(min=1, help="Rounds that count; arms take turns in each.")]
Prompts = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Texts to complete, a JSON list. [default: beginnings of Python]")
]
NoiseBudget = Annotated[
    float,
    typer.Option(
        "--noise-budget",
        "--patience",
        min=0.0,
        help="Seconds to spend, in all, on waiting for other processes to pause and on repeating what they disturbed.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Of the first round; each has its own.")]
EnforceEager = Annotated[bool, typer.Option("--enforce-eager", help="Do not compile the models.")]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures to this file.")]
CsvFile = Annotated[
    Path | None,
    typer.Option("--csv", metavar="FILE", help="Write a row per arm, workload, level, round and metric; needs pandas."),
]
MarkdownFile = Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="Write the report as Markdown.")]
PngFile = Annotated[Path | None, typer.Option("--png", metavar="FILE", help="Draw the figures into this file.")]
HtmlFile = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write the report with its picture as one HTML file.")
]
