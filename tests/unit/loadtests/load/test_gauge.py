"""A number that goes up and down."""

from loadtests.load.gauge import Gauge


def test_it_remembers_when_it_changed() -> None:
    moments = iter([1.0, 2.5, 4.0])
    gauge = Gauge(lambda: next(moments))
    for change in (1, 2, -3):
        gauge.add(change)
    assert gauge.changes == [(1.0, 1), (2.5, 3), (4.0, 0)]
