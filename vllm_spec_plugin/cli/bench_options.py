"""Options that several benchmarks share."""

from pathlib import Path
from typing import Annotated

import typer

Arms = Annotated[
    list[str] | None,
    typer.Option(
        "--arm",
        metavar="ARM",
        help="Arm to compare; repeatable: none (always included), optimal, without:MECHANISM (see `bench replay "
        "--without`), fixed:0,2,4 (an arm per K; K = 0 is the plugin with drafts off), stock:METHOD "
        "(vLLM's own draft_model, eagle3, ngram or suffix, K = 4, or as in stock:ngram:8; suffix needs the package "
        "arctic-inference), or a plugin.yaml.",
    ),
]
Target = Annotated[str | None, typer.Option(help="Folder or hub name of the target. [default: the bundled one]")]
Draft = Annotated[
    str | None,
    typer.Option(
        help="Folder or hub name of the draft model of stock:draft_model and, without --proposer, of optimal and "
        "fixed. [default: the proposer's, or the bundled one]"
    ),
]
Proposer = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A plugin.yaml with the proposer of the arms optimal and fixed; its draft_length is ignored. "
        "[default: the draft model]",
    ),
]
OptimalTokens = Annotated[
    int, typer.Option(min=1, help="Maximum draft tokens per request and step of the arm optimal.")
]
Rounds = Annotated[int, typer.Option(min=1, help="Repetitions of each arm; arms alternate within a round.")]
Prompts = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Prompts: JSON Lines or a JSON list of texts, chats or ShareGPT conversations. [default: beginnings of "
        "Python files]",
    ),
]
NoiseBudget = Annotated[
    float,
    typer.Option(
        "--noise-budget",
        min=0.0,
        help="Maximum seconds, in all, of waiting for other processes to pause and of repeating disturbed runs.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the first round; each round has its own.")]
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
