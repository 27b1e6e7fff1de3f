"""The figures as tables and sentences."""

from collections.abc import Iterator, Sequence

from rich.table import Table

from vllm_spec_plugin.tools.report.table import new_table
from vllm_spec_plugin.tools.theory import paper
from vllm_spec_plugin.tools.theory.leviathan import LARGEST_GAIN
from vllm_spec_plugin.tools.theory.study import Best, Cell

NOTE = (
    "Every draft token is taken to be accepted with probability alpha if the one before it was; accepted over drafted "
    "tokens is less than that, since those behind a rejected one count as drafted. Verifying K + 1 "
    "tokens is taken to cost the target no more than computing one{exception}. The c of a machine and what verifying "
    "costs it: vllm-spec bench drafting."
)
PAPER_NOTE = (
    "EXP, EMP: as printed, by theorem 3.8 and measured on a TPU. From, to: theorem 3.8 for what alpha and c may have "
    "been before they were rounded to two decimals."
)


def cell_table(cell: Cell) -> Table:
    """One acceptance rate and cost ratio, a row per K."""
    title = f"alpha {cell.acceptance_rate:g}, c {cell.cost_ratio:g}, c_hat {cell.operations_ratio:g}"
    verified = cell.best_verified is not None
    table = _table(title, ["K", "tokens/step", "speedup", "operations", *(["verify counted"] if verified else [])])
    for row in cell.rows:
        figures = [f"{row.expected_tokens:.2f}", f"{row.speedup:.2f}x", f"{row.operations:.2f}x"]
        if row.speedup_verified is not None:
            figures.append(f"{row.speedup_verified:.2f}x")
        best = row.draft_length == cell.best.draft_length
        table.add_row(str(row.draft_length), *figures, style="bold" if best else "")
    return table


def cell_sentence(cell: Cell) -> str:
    """The best K of a cell, and what bounds it."""
    best, limit = cell.best, _times(cell.oracle_speedup)
    if best.draft_length == 0:
        text = f"Best K: 0; drafting does not pay unless alpha is above c. An oracle for K would gain {limit}."
    elif best.draft_length is None:
        text = f"There is no best K: longer is faster, {limit if best.speedup is None else f'up to {limit}'}."
    else:
        text = (
            f"Best K: {_best(best)}. At least {cell.guaranteed_speedup:.2f}x by corollary 3.9; "
            f"an oracle that chose K anew in each step: {limit}."
        )
    if cell.best_verified is not None:
        text += f" With what verifying costs, of all K that it is given for: {_best(cell.best_verified)}."
    return text


def note(*, verified: bool) -> str:
    """What the figures are to be read with."""
    return NOTE.format(exception=', but for "verify counted"' if verified else "")


def paper_tables() -> Iterator[Table]:
    """Tables 1 and 4, Figure 3 and section 3.5's oracle."""
    table = _table(
        "Table 1: operations and speed for c = c_hat = 0",
        ["alpha", "K", "operations:\npaper", "\ncomputed", "speed:\npaper", "\ncomputed"],
    )
    for row in paper.TABLE_1:
        operations, speed = paper.computed_operations(row), paper.computed_speed(row)
        figures = (f"{row.operations:.2f}x", f"{operations:.4f}x", f"{row.speed:.2f}x", f"{speed:.4f}x")
        table.add_row(f"{row.acceptance_rate:g}", str(row.draft_length), *figures)
    yield table
    table = _table("Figure 3: the best K", ["alpha", *(f"c {cost:g}" for cost in paper.FIGURE_3_COSTS)])
    for rate, *lengths in zip(paper.FIGURE_3_RATES, *paper.figure_3(), strict=True):
        table.add_row(f"{rate:g}", *map(str, lengths))
    yield table
    table = _table("Section 3.5: an oracle for K", ["c", "worst alpha\nfor a fixed K", "over the\nbest fixed K"])
    for gain in paper.largest_gains():
        table.add_row(f"{gain.cost_ratio:g}", f"{gain.acceptance_rate:.3f}", f"{gain.gain - 1:.1%}")
    table.add_row("to 0", "to 1", f"{LARGEST_GAIN - 1:.1%}")
    table.add_row("paper", "", "up to ~60%")
    yield table
    headers = ["K", "alpha", "c", "EXP", "computed", "from", "to", "EMP"]
    table = _table("Table 4: theorem 3.8 and the paper's experiments", ["task", "draft", "T", *headers])
    for trial in paper.TABLE_4:
        least, computed, most = paper.computed_range(trial)
        table.add_row(
            trial.task,
            trial.draft,
            str(trial.temperature),
            str(trial.draft_length),
            f"{trial.acceptance_rate:.2f}",
            f"{trial.cost_ratio:.2f}",
            f"{trial.expected:.1f}x",
            *(f"{value:.2f}x" for value in (computed, least, most)),
            f"{trial.measured:.1f}x",
        )
    yield table


def _table(title: str, headers: Sequence[str]) -> Table:
    return new_table(title, headers, words=("task", "draft"))


def _best(best: Best) -> str:
    return f"{best.draft_length}, {_times(best.speedup)}"


def _times(value: float | None) -> str:
    return "without limit" if value is None else f"{value:.2f}x"
