"""Tables; what they say is tested where the command prints it."""

from vllm_spec_plugin.tools.theory.study import study
from vllm_spec_plugin.tools.theory.tables import cell_table, paper_tables


def test_the_best_k_stands_out() -> None:
    cell = study(0.5, 0.1, [1, 2, 3])
    assert cell.best.draft_length == 2
    assert [row.style for row in cell_table(cell).rows] == ["", "bold", ""]


def test_no_table_is_wider_than_a_terminal() -> None:
    from rich.console import Console

    console = Console(width=200)
    tables = [*paper_tables(), cell_table(study(0.5, 0.1, [1000], 0.1, [1.0] * 1001))]
    assert max(console.measure(table).maximum for table in tables) <= 80
