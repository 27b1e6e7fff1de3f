"""Options that several benchmarks have."""

from pathlib import Path
from typing import Annotated

import typer

Arms = Annotated[
    list[str] | None,
    typer.Option(
        "--arm",
        metavar="ARM",
        help="What to compare, as often as wanted: none (always there), optimal, without:MECHANISM (of "
        "`bench replay --without`), fixed:0,2,4 (an arm per K, 0 "
        "being the plugin with drafts off), stock:draft_model or stock:ngram (vLLM's own, with K = 4 or as "
        "stock:ngram:8), or a plugin.yaml as it is.",
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
Rounds = Annotated[int, typer.Option(min=1, help="How often each arm does everything; they take turns.")]
Prompts = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Prompts: JSON Lines or a JSON list of texts, chats or ShareGPT conversations. [default: beginnings of "
        "Python]",
    ),
]
Patience = Annotated[
    float,
    typer.Option(
        min=0.0,
        help="Seconds to spend, in all, on waiting for other processes to pause and on repeating what they disturbed.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Of the first round; each has its own.")]
EnforceEager = Annotated[bool, typer.Option("--enforce-eager", help="Do not compile the models.")]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write everything here.")]
Markdown = Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the tables here, as Markdown.")]
