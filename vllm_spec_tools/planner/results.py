"""All that a plan comes to. Pure."""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from vllm_spec_tools.planner.candidates import MeasuredCandidate
from vllm_spec_tools.planner.forecast import Forecast
from vllm_spec_tools.planner.measuring import Verified
from vllm_spec_tools.planner.models import Memory
from vllm_spec_tools.planner.recommending import Recommendation
from vllm_spec_tools.planner.traffic import Workload


@dataclass(frozen=True)
class Results:
    """Measurements, forecasts, their check and the recommendation.

    Attributes:
        measured: per engine, chains first; at least one.
        verified: what was measured of it in a closed loop, by concurrency; empty if nothing was.
        memory: of the target, and of each candidate beside it, by name.
        others: per job, the cores that other processes used meanwhile; empty where that is unknown.
    """

    workloads: tuple[Workload, ...]
    levels: tuple[int, ...]
    measured: tuple[MeasuredCandidate, ...]
    forecasts: tuple[Forecast, ...]
    choice: Forecast
    verified: dict[int, Verified]
    verdict: Recommendation
    memory: dict[str, Memory]
    facts: dict[str, dict[str, object]] = field(default_factory=dict)
    others: tuple[float, ...] = ()
    remarks: tuple[str, ...] = ()


_WIDTH = 100


def plugin_yaml(choice: Forecast, verdict: Recommendation | None, provenance: Mapping[str, Any]) -> str:
    """Returns a file for `vllm serve --speculative-config`, with comments that say where it comes from.

    Args:
        choice: what it switches on; at least one draft token.
        verdict: the answer; None if it is not known yet.
    """
    machine, model = provenance["machine"], provenance["model"]
    lines = [
        f"Written by `vllm-spec plan` on {provenance['date'][:10]} for {model}, from {provenance['prompts']['count']} "
        f"prompts, on {machine['cores']} cores of {machine['cpu']}, vLLM {provenance['versions']['vllm']}.",
        *([verdict.answer, *verdict.reasons] if verdict is not None else []),
    ]
    comments = "\n".join(
        [
            *map(_comment, lines),
            f"#   vllm-spec check THIS_FILE --model {_shown(model)}",
            f"#   vllm serve {_shown(model)} --speculative-config THIS_FILE",
        ]
    )
    proposer = yaml.safe_dump({"proposer": choice.candidate.proposer}, sort_keys=False, allow_unicode=True)
    if choice.candidate.is_tree:
        most = f"Of a whole tree, which is drafted where it pays: {choice.tokens} promised most of the sizes up to it."
    else:
        most = f"Most per request and step: {_best(choice)} was expected to pay most."
    policy = "As much as pays, by acceptance and time that the server measures itself; none where none does."
    return (
        f"{comments}\n\n{proposer}\n"
        "draft_length:\n"
        f"{_comment(policy, 2)}\n"
        "  policy: optimal\n"
        f"{_comment(most, 2)}\n"
        f"  tokens: {choice.tokens}\n\n"
        "verification:\n"
        f"{_comment('Exact: the output is distributed as without speculation.', 2)}\n"
        "  lenience: 1.0\n"
    )


def write_plugin_yaml(results: Results, origin: Mapping[str, Any], path: Path, *, anyway: bool) -> str:
    """Writes the recommended file if the answer is to speculate.

    Args:
        anyway: whether to write it also if the answer is not to speculate.

    Returns:
        What was done, for people.

    Raises:
        OSError: the file cannot be written.
    """
    if not results.choice.tokens:
        return f"{path} is not written: nothing that was considered would draft."
    if not (results.verdict.is_on or anyway):
        return f"{path} is not written, as the answer is to leave it off; --out-anyway writes it."
    path.write_text(plugin_yaml(results.choice, results.verdict, origin), encoding="utf-8")
    return f"{path} is written: vllm serve {origin['model']} --speculative-config {path}"


def _best(choice: Forecast) -> str:
    return ", ".join(f"{best.tokens} at {level} at once" for level, best in choice.best.items())


def _comment(text: str, indent: int = 0) -> str:
    start = " " * indent + "# "
    wrapper = textwrap.TextWrapper(
        _WIDTH, initial_indent=start, subsequent_indent=start, break_long_words=False, break_on_hyphens=False
    )
    return wrapper.fill(_shown(text))


def _shown(text: str) -> str:
    """Escapes a path, which may have anything in it but must not end a comment."""
    return text if text.isprintable() else repr(text)
