"""`python -m benchmarks theory`: speedups by Leviathan et al. (2023) of an acceptance rate and a cost ratio."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.cli.options import ReportFiles, grouped

if TYPE_CHECKING:
    from benchmarks.theory.study import Cell

_T = TypeVar("_T")

_LONGEST = 1000
_DRAWN_RATES, _DRAWN_COSTS = (0.5, 0.6, 0.7, 0.8, 0.9), (0.01, 0.02, 0.05, 0.1, 0.2)
_RATE = "a number from 0 to 1"
_HIGHEST_RATIO = 1000
_RATIO = f"a number from 0 to {_HIGHEST_RATIO}"
_LENGTHS = f"whole numbers from 0 to {_LONGEST}, such as 4 or 1,2,5 or 1..10"


@grouped
def theory(
    alpha: Annotated[
        list[str] | None,
        typer.Option(metavar="A", help="Acceptance rate, from 0 to 1; several as 0.6,0.8. [default: 0.8]"),
    ] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option(
            metavar="C",
            help="Cost ratio c: time of a draft step / time of a target step; several as 0.02,0.1. [default: 0.05]",
        ),
    ] = None,
    tokens: Annotated[
        list[str] | None,
        typer.Option(metavar="K", help="Draft lengths: 4, or 1,2,5, or 1..10. [default: 1..10]"),
    ] = None,
    ops_cost: Annotated[
        str | None,
        typer.Option(
            metavar="C_HAT",
            show_default=False,
            help="Arithmetic operations per token: draft / target. [default: as --cost]",
        ),
    ] = None,
    verify: Annotated[
        str | None,
        typer.Option(
            metavar="T1,T2,...",
            show_default=False,
            help="Time of a target step with 1, 2, ... tokens, in any unit; adds the speedup where verification is not "
            "free.",
        ),
    ] = None,
    paper: Annotated[
        bool,
        typer.Option("--paper", help="Instead, compute the paper's Tables 1 and 4, its Figure 3 and section 3.5."),
    ] = False,
    *,
    files: ReportFiles,
) -> None:
    """Predict the gain of speculation by the formulas of Leviathan et al. (2023).

    Prints tokens per step (equation 1), speedup (theorem 3.8), arithmetic operations (theorem 3.11) and the best K,
    for an acceptance rate alpha and a cost ratio c.
    """
    import sys

    from benchmarks.theory.report import paper_report, study_report
    from vllm_spec_tools.cli.errors import write_or_fail
    from vllm_spec_tools.report.provenance import provenance

    origin = provenance(sys.argv[1:], 0, ())
    if paper:
        given = {"--alpha": alpha, "--cost": cost, "--tokens": tokens, "--ops-cost": ops_cost, "--verify": verify}
        if used := [option for option, value in given.items() if value is not None]:
            raise UserError(f"{', '.join(used)}: not allowed with --paper, which uses the paper's values")
        report = paper_report(origin)
    else:
        cells = _study(alpha, cost, tokens, ops_cost, verify)
        rates = _each_once(cell.acceptance_rate for cell in cells) if alpha else _DRAWN_RATES
        costs = _each_once(cell.cost_ratio for cell in cells) if cost else _DRAWN_COSTS
        report = study_report(cells, rates, costs, origin)
    write_or_fail(report, files)


def _study(
    alpha: list[str] | None, cost: list[str] | None, tokens: list[str] | None, ops_cost: str | None, verify: str | None
) -> "list[Cell]":
    rates = _each_once(_number("--alpha", text, _RATE, 0, 1) for text in _items(alpha or ["0.8"]))
    costs = _each_once(_number("--cost", text, _RATIO, 0, _HIGHEST_RATIO) for text in _items(cost or ["0.05"]))
    operations = None if ops_cost is None else _number("--ops-cost", ops_cost, _RATIO, 0, _HIGHEST_RATIO)
    steps = None if verify is None else _verify_curve(verify)
    default = "1..10" if steps is None else f"1..{len(steps) - 1}"
    lengths = _each_once(length for text in _items(tokens or [default]) for length in _lengths(text))
    if steps is not None and max(lengths) >= len(steps):
        raise UserError(
            f"--verify: got {len(steps)} numbers; allowed: at least {max(lengths) + 1}, for 1 to K + 1 tokens with "
            f"K = {max(lengths)}"
        )

    from benchmarks.theory.study import study

    return [study(rate, ratio, lengths, operations, steps) for rate in rates for ratio in costs]


def _items(texts: Sequence[str]) -> list[str]:
    return [item.strip() for text in texts for item in text.split(",")]


def _number(option: str, text: str, allowed: str, lowest: float, highest: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not lowest <= value <= highest:
        raise UserError(f"{option}: got {_shown(text)}; allowed: {allowed}")
    return value


def _verify_curve(text: str) -> list[float]:
    allowed = "at least two numbers from 0.000001 to 1000000, for 1, 2, ... tokens, such as 1,1.1,1.2"
    values = [_number("--verify", item, allowed, 1e-6, 1e6) for item in _items([text])]
    if len(values) < 2:
        raise UserError(f"--verify: got {_shown(text)}; allowed: {allowed}")
    return values


def _lengths(text: str) -> range:
    match = re.fullmatch(r"(\d{1,9})(?:\.\.(\d{1,9}))?", text, re.ASCII)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if not first <= last <= _LONGEST:
        raise UserError(f"--tokens: got {_shown(text)}; allowed: {_LENGTHS}")
    return range(first, last + 1)


def _shown(text: str) -> str:
    from vllm_spec_plugin.schema.errors import show_text

    return show_text(text) or "nothing"


def _each_once(values: Iterable[_T]) -> list[_T]:
    return list(dict.fromkeys(values))
