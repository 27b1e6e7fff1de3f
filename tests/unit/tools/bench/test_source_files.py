"""Texts made from source files."""

import random

from vllm_spec_tools.bench.source_files import changed_lines, passages


def test_a_twentieth_of_the_lines_changes_and_at_least_one() -> None:
    for count, expected in ((1, 1), (19, 1), (100, 5)):
        lines = [f"line {number}" for number in range(count)]
        changed = changed_lines(lines, ["line 0", "other"], random.Random(3))
        assert sum(one != other for one, other in zip(lines, changed, strict=True)) == expected
        assert changed == changed_lines(lines, ["line 0", "other"], random.Random(3))


def test_a_passage_is_from_the_middle_of_a_file_that_is_long_enough() -> None:
    file = "".join(f"{number}\n" for number in range(10))
    wide = "".join(f"{number:50}\n" for number in range(10))
    assert passages([file, "1\n2\n3\n", wide], 3, 20) == ("5\n6\n7\n",)
