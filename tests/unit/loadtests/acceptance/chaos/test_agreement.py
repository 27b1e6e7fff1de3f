"""Outputs with and without speculation, invented."""

from loadtests.acceptance.chaos.agreement import Answer, Expected, Tokens, compare

EXPECTED = [Expected((1, 2), (10, 11, 12, 13)), Expected((3,), (20, 21, 22, 23))]


class Gaps:
    """Log-probabilities that are so far apart; notes what is asked."""

    def __init__(self, gap: float) -> None:
        self.asked: list[tuple[Tokens, tuple[int, int]]] = []
        self._gap = gap

    def __call__(self, text: Tokens, pair: tuple[int, int]) -> float:
        self.asked.append((text, pair))
        return self._gap


def test_the_same_tokens_are_identical_and_nothing_is_asked() -> None:
    gaps = Gaps(9.0)
    found = compare([Answer(0, (10, 11, 12, 13)), Answer(1, (20, 21, 22, 23))], EXPECTED, gaps)
    assert (found.identical, found.rounding, found.wrong, gaps.asked) == (2, 0, (), [])


def test_where_they_part_the_two_tokens_must_tie() -> None:
    answers = [Answer(0, (10, 11, 99, 5))]
    tied, apart = Gaps(5e-4), Gaps(5e-3)
    assert compare(answers, EXPECTED, tied).rounding == 1
    assert tied.asked == [((1, 2, 10, 11), (99, 12))]
    wrong = compare(answers, EXPECTED, apart)
    assert (wrong.identical, wrong.rounding) == (0, 0)
    assert wrong.wrong == ("prompt 0, token 3: 99 in place of 12, log-probabilities 0.0050 apart",)


def test_the_same_parting_is_asked_for_once() -> None:
    gaps = Gaps(0.0)
    found = compare([Answer(0, (10, 9)), Answer(0, (10, 9, 8)), Answer(0, (10, 7))], EXPECTED, gaps)
    assert found.rounding == 3
    assert [pair for _, pair in gaps.asked] == [(9, 11), (7, 11)]


def test_an_output_that_ends_early_or_goes_on_is_wrong_wherever() -> None:
    found = compare([Answer(1, (20, 21)), Answer(1, (20, 21, 22, 23, 24)), Answer(1, ())], EXPECTED, Gaps(0.0))
    assert found.wrong == (
        "prompt 1, token 3: one of them ends",
        "prompt 1, token 5: one of them ends",
        "prompt 1, token 1: one of them ends",
    )


def test_failed_requests_are_another_checks_affair() -> None:
    found = compare([Answer(0, (99,), "timeout: 120 s")], EXPECTED, Gaps(9.0))
    assert (found.identical, found.rounding, found.wrong) == (0, 0, ())
