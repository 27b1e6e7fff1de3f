"""The texts that are completed."""

from vllm_spec_plugin.tools.bench.prompts import PROMPTS, prompts_of_round


def test_there_are_enough_different_prompts_for_the_default_batches() -> None:
    assert len(set(PROMPTS)) == len(PROMPTS) >= 8


def test_rounds_go_through_all_prompts() -> None:
    assert [prompts_of_round(("a", "b", "c"), 1, number) for number in range(4)] == [("a",), ("b",), ("c",), ("a",)]
    assert prompts_of_round(("a", "b", "c"), 2, 1) == ("c", "a")
