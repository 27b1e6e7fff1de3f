"""The chaos: an engine with faulty proposers, disconnecting clients, invalid requests and a stopped worker."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

from loadtests.acceptance.chaos.agreement import NUM_TOKENS, PlainServer
from loadtests.acceptance.chaos.bad_requests import bad_requests
from loadtests.acceptance.chaos.checks import (
    PART,
    agreement_check,
    faults_check,
    freeze_check,
    leavers_check,
    refusal_check,
    survivors_check,
)
from loadtests.acceptance.chaos.crowd import Crowd
from loadtests.acceptance.chaos.faulty_proposer import faulty_environment
from loadtests.acceptance.load import idle_check
from loadtests.acceptance.served import WatchedServer, ending_check, log_check
from loadtests.acceptance.verdicts import Settings, Verdict, texts
from loadtests.server import (
    ACCEPTED_TOKENS,
    KV_USAGE,
    OUTPUT_TOKENS,
    PROPOSER_ERRORS,
    RUNNING,
    WAITING,
    ServerUnderTest,
)
from vllm_spec_plugin.config import load_config
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.register.plugin import SWITCH
from vllm_spec_tools.serving import runs_on_cpu

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
        yield faults_check(found.by_label(PROPOSER_ERRORS, "reason"), found.totals.get(ACCEPTED_TOKENS))
        yield freeze_check(stopped, found.totals.get(OUTPUT_TOKENS, 0.0) - at_last_stop)
        yield idle_check(PART, *(found.totals.get(name) for name in (KV_USAGE, RUNNING, WAITING)))
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
            tokens = metrics.metrics().totals.get(OUTPUT_TOKENS, 0.0)
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
