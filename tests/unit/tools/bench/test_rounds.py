"""Who runs when."""

from vllm_spec_plugin.tools.bench.rounds import in_turn


def test_arms_take_turns_and_none_is_always_first() -> None:
    order = list(in_turn(["A", "B", "C"], [1], 4))
    assert "".join(arm for *_, arm in order) == "ABCBCACABABC"
    assert [number for number, *_ in order] == sorted(3 * [0, 1, 2, 3])


def test_all_arms_do_a_cell_before_the_next_begins() -> None:
    assert list(in_turn(["A", "B"], [1, 8], 1)) == [(0, 1, "A"), (0, 1, "B"), (0, 8, "A"), (0, 8, "B")]
