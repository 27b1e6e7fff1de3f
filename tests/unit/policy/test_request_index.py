"""Rows of requests are their own, kept while others come and go, and empty when they change hands."""

from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_spec_plugin.policy.request_index import NO_ROW, RequestRows

NAMES = [f"r{index}" for index in range(200)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["add", "add one", "forget"]), st.lists(st.sampled_from(NAMES))), max_size=30)
)
def test_each_column_keeps_what_is_written_for_as_long_as_the_request_is_there(
    happened: list[tuple[str, list[str]]],
) -> None:
    requests, mark = RequestRows(), 0.0
    written: dict[str, float] = {}
    columns = [requests.column(), requests.column(2, 3)]
    for what, names in happened:
        for name in names if what != "add" else ():
            if what == "forget":
                requests.forget(name)
                written.pop(name, None)
            else:
                requests.add([name])
        for name, row in zip(names, requests.add(names).tolist(), strict=True) if what != "forget" else ():
            if name not in written:
                for column in columns:
                    assert not column.values[row].any()
                mark += 1
                written[name] = mark
                for column in columns:
                    column.values[row] = mark
    for name, value in written.items():
        for column in columns:
            assert (column.values[requests.add([name])[0]] == value).all()
    assert not columns[1].values[NO_ROW].any()


def test_rows_of_those_who_left_are_used_again() -> None:
    requests = RequestRows()
    column = requests.column(4)
    for number in range(10_000):
        requests.add([f"{number}", f"{number + 1}"])
        requests.forget(f"{number}")
    assert len(column.values) < 100
