"""When clients leave and a process stands still."""

import itertools
import random

import pytest

from loadtests.acceptance.chaos.moments import drawn_leaving, freezes


def test_clients_leave_before_the_stream_and_anywhere_in_it() -> None:
    rng = random.Random(0)
    drawn = [drawn_leaving(rng) for _ in range(400)]
    early = [one for one in drawn if one.pieces is None]
    pieces = [one.pieces for one in drawn if one.pieces is not None]
    # Of 400, 100 +- 9; these bounds are 5 standard deviations away.
    assert 56 <= len(early) <= 144
    assert all(0 < one.patience < 1 for one in early)
    assert min(pieces) == 1
    assert max(pieces) > 30


@pytest.mark.parametrize("seconds", [2.0, 45.0, 600.0])
def test_standing_still_is_short_and_work_goes_on_around_it(seconds: float) -> None:
    times = freezes(seconds)
    assert len(times) == 2
    moments = [0.0, *itertools.chain(*times), seconds]
    assert moments == sorted(set(moments))
    lengths = [end - begin for begin, end in times]
    assert max(lengths) <= 3.0 + 1e-9
    assert sum(lengths) <= seconds / 2
