"""Rows of requests are their own, kept while others come and go, and empty when they change hands."""

from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_spec_plugin.policy.request_rows import RequestRows

NAMES = [f"r{index}" for index in range(200)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["add", "free", "forget"]), st.lists(st.sampled_from(NAMES))), max_size=30))
def test_a_row_keeps_what_is_written_for_as_long_as_the_request_is_there(
    happened: list[tuple[str, list[str]]],
) -> None:
    requests, mark = RequestRows(1), 0
    written: dict[str, int] = {}
    for what, names in happened:
        if what == "free":
            requests.free()
        elif what == "forget":
            for name in names:
                requests.forget(name)
                written.pop(name, None)
        else:
            for name, row in zip(names, requests.add(names).tolist(), strict=True):
                if name not in written:
                    assert not requests.effects[row].any()
                    assert not requests.num_output[row]
                    mark += 1
                    written[name] = requests.effects[row] = requests.num_output[row] = mark
    for name, value in written.items():
        [row] = requests.add([name])
        assert (requests.effects[row] == value).all()
        assert requests.num_output[row] == value


def test_rows_of_those_who_left_are_used_again() -> None:
    requests = RequestRows(1)
    for number in range(10_000):
        requests.add([f"{number}", f"{number + 1}"])
        requests.forget(f"{number}")
        requests.free()
    assert len(requests.effects) < 100


def test_who_was_asked_before_the_one_with_a_draft_had_none() -> None:
    """Row, proposer, planned, drafted, accepted and nodes; a request that is not known has no row."""
    requests = RequestRows(3)
    a, b = requests.add(["a", "b"]).tolist()
    requests.verified("a", ((2, 4), (0, 3), (1, 5)), 0, 2, 1)
    requests.verified("b", ((1, 5), (0, 3)), None, 0, 0)
    requests.verified("b", ((1, 5),), 1, 9, 7)
    requests.verified("c", ((1, 5),), 1, 2, 1)
    assert requests.take().tolist() == [
        [a, 2, 4, 0, 0, 0],
        [a, 0, 3, 2, 1, 0b1],
        [b, 1, 5, 0, 0, 0],
        [b, 0, 3, 0, 0, 0],
        [b, 1, 5, 5, 5, 0b1111111],
    ]
    assert not requests.take().size


def test_accepted_nodes_of_a_tree_are_bits() -> None:
    """A tree without branches names no nodes: the first ones are accepted. The 64th bit of a number is its sign."""
    requests = RequestRows(1)
    requests.add(["a"])
    for nodes in ((0, 2), (), None, (0, 63)):
        requests.verified("a", ((0, 64),), 0, 64, 2, nodes)
    assert requests.take()[:, 5].tolist() == [0b101, 0, 0b11, 1 - 2**63]
