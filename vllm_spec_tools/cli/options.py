"""Options that several commands share."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from vllm_spec_tools.report.output import Files, Pages, check_files

ReportFiles = Files
ReportPages = Pages
Model = Annotated[str, typer.Option(help="Folder or hub name of the served model.", show_default=False)]
Arms = Annotated[
    list[str] | None,
    typer.Option(
        "--arm",
        metavar="ARM",
        help="Arm to compare; repeatable: none (always included), optimal, fixed:0,2,4 (an arm per K; K = 0 is the "
        "plugin with drafts off), stock:METHOD (vLLM's own draft_model, eagle3, ngram or suffix, K = 4, or as in "
        "stock:ngram:8; suffix needs the package arctic-inference), stock:JSON (vLLM's speculative config, as in "
        """stock:{"method": "draft_model", "num_speculative_tokens": 4, "num_speculative_tokens_per_batch_size": """
        "[[1, 8, 4], [9, 1024, 0]]}; a draft model or head that it does not name is --draft's), vllm:JSON (the same "
        "drafter with method vllm and the policy optimal, up to num_speculative_tokens), a plugin.yaml, or "
        "off:plugin.yaml (drafting off in every request).",
    ),
]
TargetModel = Annotated[
    str | None,
    typer.Option("--model", "--target", help="Folder or hub name of the served model. [default: the bundled one]"),
]
Draft = Annotated[
    str | None,
    typer.Option(
        help="Folder or hub name of the weights of stock:draft_model or stock:eagle3 and, without --proposer, of the "
        "draft model of optimal and fixed. [default: the proposer's, or the bundled ones]"
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
OneAtATime = Annotated[
    bool,
    typer.Option(
        "--one-at-a-time",
        help="Run one engine at a time, for models that do not fit into memory side by side: each arm's starts again "
        "in every round, and ends before the next one starts.",
    ),
]
EnforceEager = Annotated[bool, typer.Option("--enforce-eager", help="Do not compile the models.")]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command an option for each field of its parameters that are dataclasses."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        one.name: one.annotation for one in signature.parameters.values() if is_dataclass(one.annotation)
    }
    parameters: list[inspect.Parameter] = []
    for one in signature.parameters.values():
        if one.name not in groups:
            parameters.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        hints = get_type_hints(groups[one.name], include_extras=True)
        for option in fields(groups[one.name]):
            default = inspect.Parameter.empty if option.default is MISSING else option.default
            if option.default_factory is not MISSING:
                default = option.default_factory()
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(option.name, kind, default=default, annotation=hints[option.name]))

    def with_groups(**values: Any) -> None:
        made = {
            name: group(**{option.name: values.pop(option.name) for option in fields(group)})
            for name, group in groups.items()
        }
        for group in made.values():
            if isinstance(group, ReportPages):
                check_files(group)
        command(**values, **made)

    with_groups.__doc__, with_groups.__name__ = command.__doc__, command.__name__
    with_groups.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return with_groups
