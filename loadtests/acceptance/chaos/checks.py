"""What is to be true in and after the chaos. Pure."""

from collections.abc import Mapping, Sequence

from loadtests.acceptance.chaos.agreement import Agreement, Answer
from loadtests.acceptance.verdicts import Verdict
from vllm_spec_plugin.metrics.counters import PROPOSER_ERRORS, RANKS_DIFFER, WRONG_TREE

# As which the guard counts the faults that are made.
_REASONS = tuple(reason for reason in PROPOSER_ERRORS if reason not in (WRONG_TREE, RANKS_DIFFER))
_MOST_SHOWN = 3


def survivors_check(part: str, answers: Sequence[Answer], prompts: int, num_tokens: int) -> Verdict:
    """Whether everybody who stayed was answered, to the last token.

    Args:
        part: of the test.
        answers: to those who stayed.
        prompts: how many different ones there are.
        num_tokens: of an answer.
    """
    errors = [answer.error for answer in answers if answer.error]
    short = sum(len(answer.tokens) != num_tokens for answer in answers if not answer.error)
    answered = len({answer.prompt for answer in answers})
    figures = f"{len(answers)} answers to {answered} prompts, {len(errors)} failed, {short} without {num_tokens} tokens"
    if errors:
        figures += f": {'; '.join(errors[:_MOST_SHOWN])}"
    return Verdict(part, "who stays is answered", answered == prompts and not errors and not short, figures)


def agreement_check(part: str, agreement: Agreement) -> Verdict:
    """Whether what they were told at temperature 0 is what they are told without speculation."""
    wrong = agreement.wrong
    figures = f"{agreement.identical} identical, {agreement.rounding} part where two tokens tie, {len(wrong)} wrong"
    if wrong:
        figures += f": {'; '.join(wrong[:_MOST_SHOWN])}"
    passed = not wrong and agreement.identical > 0
    return Verdict(part, "greedy outputs are those without speculation", passed, figures)


def leavers_check(part: str, early: int, midway: int) -> Verdict:
    """Whether clients did leave: else nothing would have been tried."""
    figures = f"{midway} within their stream, {early} before it began"
    return Verdict(part, "clients leave at random moments", early > 0 and midway > 0, figures)


def faults_check(part: str, errors: Mapping[str, float], accepted: float | None) -> Verdict:
    """Whether proposers failed in each way, which was counted, and their other drafts were used.

    Args:
        part: of the test.
        errors: counted drafts lost, by reason.
        accepted: draft tokens that were accepted; None if not counted.
    """
    told = ", ".join(f"{count:.0f} {reason}" for reason, count in errors.items() if count) or "none"
    passed = all(errors.get(reason, 0) > 0 for reason in _REASONS) and bool(accepted)
    figures = f"{told}; {accepted or 0:.0f} tokens of sound drafts accepted"
    return Verdict(part, "faults of proposers are counted and cost no more than drafts", passed, figures)


def freeze_check(part: str, lengths: Sequence[float], tokens_after: float) -> Verdict:
    """Whether the worker stood still, and went on.

    Args:
        part: of the test.
        lengths: seconds of each time that it stood still.
        tokens_after: that the server made after the last time.
    """
    times = ", ".join(f"{length:.1f} s" for length in lengths)
    figures = f"stopped for {times or 'no time'}; {tokens_after:.0f} tokens afterwards"
    return Verdict(part, "a worker that stood still goes on", bool(lengths) and tokens_after > 0, figures)
