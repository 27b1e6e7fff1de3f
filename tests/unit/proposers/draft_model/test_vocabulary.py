"""Two vocabularies, compared."""

import pytest

from vllm_spec_plugin.proposers.draft_model.vocabulary import compare

ABC = {"a": 0, "b": 1, "c": 2}


@pytest.mark.parametrize(
    ("draft", "differing", "unshared"),
    [
        ({"a": 0, "b": 2, "c": 1}, {1: ("b", "c"), 2: ("c", "b")}, {}),
        ({"a": 0, "b": 1, "x": 2}, {2: ("c", "x")}, {}),
        ({"a": 0, "b": 1, "c": 7}, {2: ("c", None), 7: (None, "c")}, {}),
        ({"a": 0, "b": 1}, {}, {2: "c"}),
        ({**ABC, "d": 3}, {}, {3: "d"}),
        ({"A": 0, "B": 1, "C": 2, "D": 3}, {0: ("a", "A"), 1: ("b", "B"), 2: ("c", "C")}, {3: "D"}),
    ],
)
def test_what_differs_is_told_from_what_only_one_has(
    draft: dict[str, int], differing: dict[int, tuple[str | None, str | None]], unshared: dict[int, str]
) -> None:
    found = compare(ABC, draft)
    assert found.differing == differing
    assert found.unshared == unshared
    assert list(found.differing) == sorted(found.differing)


def test_a_second_name_of_an_id_is_no_difference() -> None:
    found = compare({**ABC, "also c": 2}, {**ABC, "c as well": 2})
    assert found.differing == {}
    assert found.unshared == {}
