"""Tests drafts from predictions: edits of every kind are bridged, places are found again, useless ones cost little."""

import random

import pytest

from vllm_spec_plugin.proposers.prediction.alignment import Alignment

PREDICTION = list(range(100, 200))


def aligned(output: list[int], prediction: list[int] | None = None) -> Alignment:
    alignment = Alignment(PREDICTION if prediction is None else prediction)
    alignment.advance(output)
    return alignment


@pytest.mark.parametrize(
    ("output", "place", "accepted"),
    [
        pytest.param([*range(100, 110), 7], None, 10, id="in doubt"),
        pytest.param([*range(100, 110), 7, 110], 111, 10, id="a token inserted"),
        pytest.param([*range(100, 110), 111], None, 10, id="left out, or another"),
        pytest.param([*range(100, 110), 111, 112], 113, 11, id="a token left out"),
        pytest.param([*range(100, 110), 7, 111, 112], 113, 12, id="a token replaced, and on"),
        pytest.param([*range(100, 110), 7, 111, 112, 8], 114, 12, id="after a replaced token one more"),
        pytest.param([*range(100, 110), 7, 8], None, 10, id="lost"),
        pytest.param([*range(100, 110), 7, 8, 9, 113], None, 10, id="one known token is not enough"),
        pytest.param([*range(100, 110), 7, 8, 9, 113, 114], 115, 10, id="two are: a line replaced"),
        pytest.param([*range(100, 110), 7, 8, 9, 110, 111], 112, 10, id="a line inserted"),
        pytest.param([*range(100, 110), *range(150, 156)], 156, 14, id="lines left out"),
        pytest.param([*range(100, 110), 7, 8, 190, 191, 192], None, 10, id="far away three are not enough"),
        pytest.param([*range(100, 110), 7, 8, 9, *[6] * 5, *range(190, 194)], 194, 10, id="far away four are"),
        pytest.param([7, 8, 9, *range(100, 105)], 105, 3, id="something before it all"),
        pytest.param([*range(150, 160), *range(100, 105)], 105, 11, id="the order changed"),
    ],
)
def test_edits(output: list[int], place: int | None, accepted: int) -> None:
    found = aligned(output)
    assert found.continuation(1) == ([] if place is None else [place])
    assert (found.num_tokens, found.num_accepted) == (len(output), accepted)


def test_of_several_places_the_longest_match_counts_then_the_next() -> None:
    block = [1, 2, 3, 4, 5]
    prediction = [9, *block, 10, 8, *block, 20, 7, *block, 30]
    # The output turns to the second block: its token before tells which.
    assert aligned([50, 51, 52, 8, *block], prediction).continuation(1) == [20]
    # Nothing tells: lost at the second block's 8, the next one ahead is the second.
    assert aligned([9, *block, 10, 60, 61, 1, 2, 3], prediction).continuation(1) == [4]
    assert aligned([9, *block, 10, 60, 61, *block], prediction).continuation(1) == [20]
    # A near match of two tokens, and one of four farther away.
    prediction = [100, 101, 1, 2, 20, *range(200, 300), 7, 8, 1, 2, 30]
    assert aligned([100, *[50] * 12, 7, 8, 1, 2], prediction).continuation(1) == [30]


def test_pieces_give_what_the_whole_gives() -> None:
    rng = random.Random(0)
    for _ in range(300):
        prediction = [rng.randrange(6) for _ in range(60)]
        output = [token for token in prediction if rng.random() > 0.1]
        for _ in range(3):
            output.insert(rng.randrange(len(output)), rng.randrange(6))
        whole, pieces, done = aligned(output, prediction), Alignment(prediction), 0
        while done < len(output):
            size = rng.randrange(1, 6)
            pieces.advance(output[done : done + size])
            done += size
        assert pieces.continuation(9) == whole.continuation(9)
        assert pieces.num_accepted == whole.num_accepted


def test_most_of_an_edited_file_is_predicted() -> None:
    """5% of 400 lines of 10 tokens are changed; a changed line costs its tokens and those that find the place again."""
    rng = random.Random(1)
    lines = [[rng.randrange(1000, 9000) for _ in range(10)] for _ in range(400)]
    edited = [[rng.randrange(10) for _ in range(10)] if rng.random() < 0.05 else line for line in lines]
    output = [token for line in edited for token in line]
    num_changed = sum(line != new for line, new in zip(lines, edited, strict=True))
    assert num_changed > 10
    found = aligned(output, [token for line in lines for token in line])
    assert found.num_accepted >= len(output) - 13 * num_changed


def test_places_found_by_chance_need_ever_longer_matches() -> None:
    """Pairs of the prediction in an order of their own: after each false place one token more must match."""
    pairs = [[number, number + 1] for number in range(100, 130, 2)]
    found, num_drafts = Alignment(PREDICTION), 0
    for pair in reversed(pairs):
        found.advance([7, 7, *pair])
        num_drafts += bool(found.continuation(1))
    assert num_drafts == 1
    found.advance([8, 8, *range(140, 150)])
    assert found.continuation(1) == [150]
    # Eight tokens that agree, and two are enough again.
    found.advance([*range(150, 160), 7, 7, 170, 171])
    assert found.continuation(1) == [172]
