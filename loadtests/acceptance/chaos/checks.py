"""Checks of the chaos."""

from collections.abc import Callable, Mapping, Sequence

from loadtests.acceptance.chaos.agreement import Answer, Expected, Tokens
from loadtests.acceptance.verdicts import Verdict
from vllm_spec_plugin.metrics.counters import PROPOSER_ERRORS, RANKS_DIFFER, WRONG_TREE
from vllm_spec_tools.certify.greedy import first_differences, tolerance_of

PART = "chaos"
_REFUSED = 400
_MOST_SHOWN = 3
# Reasons as which the guard counts the injected faults.
_REASONS = tuple(reason for reason in PROPOSER_ERRORS if reason not in (WRONG_TREE, RANKS_DIFFER))


def _verdict(check: str, passed: bool, figures: str, examples: Sequence[str] = ()) -> Verdict:
    shown = "; ".join(examples[:_MOST_SHOWN])
    return Verdict(PART, check, passed, f"{figures}: {shown}" if shown else figures)


def survivors_check(answers: Sequence[Answer], prompts: int, num_tokens: int) -> Verdict:
    """Checks that clients that stayed were answered, each of `prompts` prompts, to the last of `num_tokens` tokens."""
    errors = [answer.error for answer in answers if answer.error]
    short = sum(len(answer.tokens) != num_tokens for answer in answers if not answer.error)
    answered = len({answer.prompt for answer in answers})
    figures = f"{len(answers)} answers to {answered} prompts, {len(errors)} failed, {short} without {num_tokens} tokens"
    passed = answered == prompts and not errors and not short
    return _verdict("clients that stay are answered", passed, figures, errors)


def leavers_check(early: int, midway: int) -> Verdict:
    """Checks that clients did disconnect; otherwise nothing was tested."""
    figures = f"{midway} within their stream, {early} before it began"
    return _verdict("clients leave at random moments", early > 0 and midway > 0, figures)


def refusal_check(answers: Sequence[tuple[str, int]], kinds: int) -> Verdict:
    """Checks that invalid requests of all kinds were refused.

    Args:
        answers: names of invalid requests, and the HTTP status of each response; 0 for none.
    """
    wrong = [f"{status} for {name}" for name, status in answers if status != _REFUSED]
    tried = len({name for name, _ in answers})
    figures = f"{len(answers)} requests of {tried} kinds, {len(wrong)} answered with anything but {_REFUSED}"
    passed = tried == kinds and not wrong
    return _verdict("invalid requests are refused", passed, figures, list(dict.fromkeys(wrong)))


def faults_check(errors: Mapping[str, float], accepted: float | None) -> Verdict:
    """Checks that faults of each kind were counted, and that other drafts were accepted; None is not exported."""
    counted = ", ".join(f"{count:.0f} {reason}" for reason, count in errors.items() if count) or "none"
    passed = all(errors.get(reason, 0) > 0 for reason in _REASONS) and bool(accepted)
    figures = f"{counted}; {accepted or 0:.0f} tokens of sound drafts accepted"
    return _verdict("faults of proposers are counted and cost drafts only", passed, figures)


def freeze_check(lengths: Sequence[float], tokens_after: float) -> Verdict:
    """Checks that the worker was stopped, for these seconds each, and output tokens after the last stop."""
    times = ", ".join(f"{length:.1f} s" for length in lengths)
    figures = f"stopped for {times or 'no time'}; {tokens_after:.0f} tokens afterwards"
    return _verdict("a stopped worker continues", bool(lengths) and tokens_after > 0, figures)


def agreement_check(
    answers: Sequence[Answer],
    expected: Sequence[Expected],
    top_two: Callable[[Tokens], dict[int, float]],
    dtype: str = "float32",
) -> Verdict:
    """Checks that greedy outputs are those without speculation; answers with an error do not count.

    Args:
        answers: any number per prompt.
        expected: outputs without speculation, by index of the prompt.
        top_two: log-probabilities of the two most likely tokens after a text, by token id.
    """
    outputs = [answer.tokens for answer in answers if not answer.error]
    wanted = [expected[answer.prompt] for answer in answers if not answer.error]
    differences = first_differences(
        outputs,
        [one.tokens for one in wanted],
        lambda i, position: top_two(wanted[i].prompt_tokens + wanted[i].tokens[:position]),
        tolerance_of(dtype),
    )
    wrong = [one for one in differences if not one.is_tie]
    identical = len(outputs) - len(differences)
    figures = f"{identical} identical, {len(differences) - len(wrong)} differ where two tokens tie, {len(wrong)} wrong"
    examples = [
        f"output {one.request}, token {one.position + 1}: {one.tokens[0]}, not {one.tokens[1]}, "
        f"{one.logit_gap:.4f} apart"
        for one in wrong
    ]
    return _verdict("greedy outputs are those without speculation", not wrong and identical > 0, figures, examples)
