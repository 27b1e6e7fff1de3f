"""The chaos: an engine with faulty proposers, disconnecting clients, invalid requests and a stopped worker."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from loadtests.server import COUNTERS, GAUGES, ServerUnderTest
from tests.acceptance.chaos.clients import NUM_TOKENS, Answer, Crowd, Expected, PlainServer, Tokens, bad_requests
from tests.acceptance.chaos.faulty_proposer import faulty_environment
from tests.acceptance.load import idle_check
from tests.acceptance.served import WatchedServer, ending_check, log_check
from tests.acceptance.verdicts import Settings, Verdict, texts
from vllm_spec_plugin.config import load_config
from vllm_spec_plugin.metrics.counters import PROPOSER_ERRORS as REASONS
from vllm_spec_plugin.metrics.counters import RANKS_DIFFER, WRONG_TREE
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.register.switch import SWITCH
from vllm_spec_tools.certify.greedy import first_differences, tolerance_of
from vllm_spec_tools.engines.serving import runs_on_cpu

PART = "chaos"
_REFUSED = 400
_MOST_SHOWN = 3
# Reasons as which the guard counts the injected faults.
_REASONS = tuple(reason for reason in REASONS if reason not in (WRONG_TREE, RANKS_DIFFER))


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


_FAULT_RATE = 0.2
_SEED = 0
_DRAFT_TOKENS = 4
_FREEZES, _FREEZE_SECONDS = 2, 3.0


def run_chaos(settings: Settings) -> Iterator[Verdict]:
    """Runs an engine among faults, then one without speculation, and checks.

    Raises:
        ServerError: an engine does not start, or its process of the models is not found.
        ServerNotThereError: an engine's metrics cannot be read.
        httpx.HTTPError: an engine does not answer.
    """
    prompts = texts("code", "edit")
    log = settings.out / "chaos-server.log"
    with WatchedServer(
        model_path("target"),
        _always_drafting(settings.config, settings.out / "chaos.yaml"),
        extra_args=settings.server_arguments,
        environment=settings.server_environment | faulty_environment(_FAULT_RATE, _SEED),
        log_path=log,
        console=settings.console,
    ) as server:
        metrics = ServerUnderTest(server.base_url)
        bad = bad_requests(server.model, int(metrics.first_model()["max_model_len"]))
        crowd = Crowd(server.base_url, server.model, prompts, bad, _SEED)
        with crowd:
            stopped, at_last_stop = _among_freezes(server, metrics, crowd, settings)
        found = metrics.idle_metrics()
        yield survivors_check(crowd.answers, len(prompts), NUM_TOKENS)
        yield leavers_check(crowd.left_early, crowd.left_midway)
        yield refusal_check(crowd.refusals, len(bad))
        errors = found.by_label(COUNTERS["proposer_errors"], "reason")
        yield faults_check(errors, found.totals.get(COUNTERS["accepted_tokens"]))
        yield freeze_check(stopped, found.totals.get(COUNTERS["output_tokens"], 0.0) - at_last_stop)
        yield idle_check(PART, *(found.totals.get(name) for name in GAUGES.values()))
        yield ending_check(PART, server.terminate())
    yield log_check(PART, log.read_text(errors="replace"))

    with WatchedServer(
        model_path("target"),
        environment={SWITCH: "0"},
        log_path=settings.out / "plain-server.log",
        console=settings.console,
    ) as server:
        plain = PlainServer(server.base_url, server.model)
        dtype = "float32" if runs_on_cpu() else "bfloat16"
        yield agreement_check(crowd.answers, plain.expected(prompts), plain.top_two, dtype)
        plain.close()


def _always_drafting(config: Path, path: Path) -> str:
    """Writes a config with the same proposers that always drafts: a policy might stop drafting."""
    data = load_config(config).model_dump(mode="json", include={"proposer"})
    data["draft_length"] = {"policy": "fixed", "tokens": _DRAFT_TOKENS}
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return str(path)


def _among_freezes(
    server: WatchedServer, metrics: ServerUnderTest, crowd: Crowd, settings: Settings
) -> tuple[list[float], float]:
    """Lets the crowd send requests, and stops the worker now and then.

    Returns:
        The seconds of each stop, and the output tokens until the end of the last one.
    """
    worker = server.worker()
    stopped: list[float] = []
    tokens = 0.0
    start = time.monotonic()

    def wait_until(when: float) -> None:
        time.sleep(max(start + when - time.monotonic(), 0.0))
        left = crowd.left_early + crowd.left_midway
        line = f"{PART}: {when:.0f} s, {len(crowd.answers)} answers, {left} left, {len(crowd.refusals)} refusals"
        settings.say(line)

    for begin, end in freezes(settings.chaos_seconds):
        wait_until(begin)
        since = time.monotonic()
        worker.send_signal(signal.SIGSTOP)
        try:
            wait_until(end)
            tokens = metrics.metrics().totals.get(COUNTERS["output_tokens"], 0.0)
        finally:
            worker.send_signal(signal.SIGCONT)
        stopped.append(time.monotonic() - since)
    wait_until(settings.chaos_seconds)
    return stopped, tokens


def freezes(seconds: float) -> tuple[tuple[float, float], ...]:
    """Begin and end of each stop, in seconds, spread evenly over the test."""
    length = min(_FREEZE_SECONDS, seconds / (2 * _FREEZES + 1))
    free = (seconds - _FREEZES * length) / (_FREEZES + 1)
    starts = [free + number * (free + length) for number in range(_FREEZES)]
    return tuple((start, start + length) for start in starts)
