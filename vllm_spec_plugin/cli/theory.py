"""`vllm-spec theory`: predicts speedups by Leviathan et al. (2023) from an acceptance rate and a cost ratio."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from vllm_spec_plugin.schema.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from vllm_spec_plugin.tools.theory.plot import Picture

_T = TypeVar("_T")

_LONGEST = 1000
_CURVES = 5  # of draft lengths; more than that are hard to tell apart
_RATE = "a number from 0 to 1"
_HIGHEST_RATIO = 1000
_RATIO = f"a number from 0 to {_HIGHEST_RATIO}"
_LENGTHS = f"whole numbers from 0 to {_LONGEST}, such as 4 or 1,2,5 or 1..10"


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
    out: Annotated[
        Path | None, typer.Option(metavar="PNG", show_default=False, help="Also plot the curves to this file.")
    ] = None,
    json_path: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", show_default=False, help="Also write all figures to this file."),
    ] = None,
) -> None:
    """Predict the gain of speculation by the formulas of Leviathan et al. (2023).

    Prints tokens per step (equation 1), speedup (theorem 3.8), arithmetic operations (theorem 3.11) and the best K,
    for an acceptance rate alpha and a cost ratio c.
    """
    _check_path("--out", out, ".png")
    _check_path("--json", json_path, "")
    if paper:
        given = {"--alpha": alpha, "--cost": cost, "--tokens": tokens, "--ops-cost": ops_cost, "--verify": verify}
        if used := [option for option, value in given.items() if value is not None]:
            raise UserError(f"{', '.join(used)}: not allowed with --paper, which uses the paper's values")
        report = _paper()
    else:
        report = _study(alpha, cost, tokens, ops_cost, verify, drawn=out is not None)

    from vllm_spec_plugin.cli.console import new_console

    console = new_console()
    for part in report.parts:
        console.print(part, highlight=False)
    _write(report, out, json_path)


@dataclass(frozen=True)
class _Report:
    parts: "list[Table | str]"
    picture: "Picture"
    data: dict[str, Any]


def _study(
    alpha: list[str] | None,
    cost: list[str] | None,
    tokens: list[str] | None,
    ops_cost: str | None,
    verify: str | None,
    *,
    drawn: bool,
) -> _Report:
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

    from vllm_spec_plugin.tools.theory import plot, tables
    from vllm_spec_plugin.tools.theory.study import study, to_json

    for option, values in (("--alpha", rates), ("--cost", costs)):
        if drawn and len(values) > plot.MOST_CURVES:
            raise UserError(f"{option}: got {len(values)} numbers; allowed: up to {plot.MOST_CURVES} with --out")
    picture = plot.Picture(
        rates if alpha else (0.5, 0.6, 0.7, 0.8, 0.9),
        costs if cost else (0.01, 0.02, 0.05, 0.1, 0.2),
        _spread(lengths, _CURVES),
        costs[0],
        costs[0] if operations is None else operations,
    )
    cells = [study(rate, ratio, lengths, operations, steps) for rate in rates for ratio in costs]
    parts = [part for cell in cells for part in (tables.cell_table(cell), f"{tables.cell_sentence(cell)}\n")]
    return _Report([*parts, tables.note(verified=steps is not None)], picture, to_json(cells))


def _paper() -> _Report:
    from vllm_spec_plugin.tools.theory import paper, plot, tables

    rates = sorted({row.acceptance_rate for row in paper.TABLE_1})
    lengths = sorted({row.draft_length for row in paper.TABLE_1})
    picture = plot.Picture(rates, paper.FIGURE_3_COSTS, lengths, 0.0, 0.0)
    return _Report([*tables.paper_tables(), tables.PAPER_NOTE], picture, paper.to_json())


def _write(report: _Report, out: Path | None, json_path: Path | None) -> None:
    import json

    from vllm_spec_plugin.tools.theory.plot import draw

    for path in (out, json_path):
        if path is None:
            continue
        if path is out:
            draw(report.picture, path)
        else:
            path.write_text(json.dumps(report.data, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        typer.echo(f"written to {path}")


def _check_path(option: str, path: Path | None, suffix: str) -> None:
    if path is None:
        return
    if not path.name.lower().endswith(suffix):
        raise UserError(f"{option} {path}: allowed: a name that ends in {suffix}")
    if not path.absolute().parent.is_dir():
        raise UserError(f"{option} {path}: there is no folder {path.absolute().parent}")


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


def _spread(values: list[int], most: int) -> list[int]:
    """Returns all values, or `most` of them at equal distances with the first and the last."""
    if len(values) <= most:
        return values
    return [values[round(number * (len(values) - 1) / (most - 1))] for number in range(most)]
