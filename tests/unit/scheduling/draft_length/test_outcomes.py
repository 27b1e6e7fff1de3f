"""What is noted of drafts."""

from vllm_spec_plugin.scheduling.draft_length.outcomes import Outcomes


def test_nothing_noted_is_nothing_to_learn() -> None:
    assert Outcomes(2).take() is None


def test_who_was_asked_before_the_one_with_a_guess_had_none() -> None:
    outcomes = Outcomes(3)
    outcomes.verified("a", ((2, 4), (0, 3), (1, 5)), 0, 2, 1)
    outcomes.verified("b", ((1, 5), (0, 3)), None, 0, 0)
    outcomes.verified("c", (), None, 0, 0)
    noted = outcomes.take()
    assert noted is not None
    assert list(noted.request_ids) == ["a", "b", "c"]
    assert noted.num_tokens.tolist() == [2, 1, 1]
    asked, drafted, accepted = noted.fates.swapaxes(0, 1).tolist()
    assert asked == [[3, 3, 0], [0, 5, 0], [4, 0, 0]]
    assert drafted == [[2, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert accepted == [[1, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert outcomes.take() is None


def test_steps_of_one_request_stay_apart_and_in_order() -> None:
    outcomes = Outcomes(1)
    for accepted in (0, 3):
        outcomes.verified("a", ((0, 3),), 0, 3, accepted)
    noted = outcomes.take()
    assert noted is not None
    assert noted.fates[0].tolist() == [[3, 3], [3, 3], [0, 3]]
    assert noted.num_tokens.tolist() == [1, 4]


def test_more_than_was_asked_for_is_cut() -> None:
    outcomes = Outcomes(1)
    outcomes.verified("a", ((0, 2),), 0, 4, 3)
    noted = outcomes.take()
    assert noted is not None
    assert noted.fates.tolist() == [[[2], [2], [2]]]
