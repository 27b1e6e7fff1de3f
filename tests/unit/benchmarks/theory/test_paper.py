"""The paper's printed figures come out."""

import pytest

from benchmarks.theory import paper
from benchmarks.theory.leviathan import speedup
from benchmarks.theory.paper import Experiment, TradeOff


@pytest.mark.parametrize("row", paper.TABLE_1, ids=str)
def test_table_1_comes_out_to_its_two_decimals(row: TradeOff) -> None:
    operations, speed = paper.computed(row)
    assert (round(operations, 2), round(speed, 2)) == (row.operations, row.speed)


@pytest.mark.parametrize("row", paper.TABLE_4, ids=str)
def test_table_4_is_theorem_3_8_as_far_as_its_rounded_inputs_tell(row: Experiment) -> None:
    least, computed, most = paper.computed_range(row)
    assert least < computed < most
    assert round(least, 1) <= row.expected <= round(most, 1)
    assert abs(computed - row.expected) < 0.07


def test_a_bigram_model_for_nothing_gains_a_quarter_as_section_3_6_says() -> None:
    assert round(speedup(0.2, 3, 0), 2) == 1.25
