"""The chaos: one served engine among all that can go wrong, then one without speculation to compare with."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import yaml

from loadtests.acceptance.chaos.agreement import compare
from loadtests.acceptance.chaos.checks import (
    agreement_check,
    faults_check,
    freeze_check,
    leavers_check,
    survivors_check,
)
from loadtests.acceptance.chaos.crowd import NUM_TOKENS, Crowd
from loadtests.acceptance.chaos.faulty_proposer import faulty_environment
from loadtests.acceptance.chaos.moments import freezes
from loadtests.acceptance.chaos.plain import PlainServer
from loadtests.acceptance.chaos.refusals import bad_requests, refusal_check
from loadtests.acceptance.metrics import ERRORS, idle_check, read_text, settled_text
from loadtests.acceptance.progress import shown_time
from loadtests.acceptance.prompts import texts
from loadtests.acceptance.served import WatchedServer, ending_check
from loadtests.acceptance.server_log import log_check
from loadtests.acceptance.settings import Settings
from loadtests.acceptance.verdicts import Verdict
from vllm_spec_plugin.config import load_config
from vllm_spec_plugin.register.plugin import SWITCH
from vllm_spec_plugin.tools.demo import model_path
from vllm_spec_plugin.tools.server_metrics import ServerMetrics

_PART = "chaos"
_FAULT_RATE = 0.2
_SEED = 0
_DRAFT_TOKENS = 4
_POLL_SECONDS = 0.25
_TOKENS, _ACCEPTED = "vllm:generation_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"


def run_chaos(settings: Settings) -> Iterator[Verdict]:
    """Runs both engines, one after the other, and judges.

    Raises:
        ServerError: one of them does not start.
        httpx.HTTPError: it does not answer.
    """
    prompts = texts(("code", "edit"))
    log = settings.out / "chaos-server.log"
    with WatchedServer(
        model_path("target"),
        _always_drafting(settings.config, settings.out / "chaos.yaml"),
        environment=faulty_environment(_FAULT_RATE, _SEED),
        log_path=log,
        console=settings.console,
    ) as server:
        bad = bad_requests(server.model, _context(server))
        crowd = Crowd(server.base_url, server.model, prompts, bad, _SEED)
        with crowd:
            stopped, at_last_stop = _among_freezes(server, crowd, settings)
        text = settled_text(server.base_url)
        reading = ServerMetrics.parse(text)
        yield survivors_check(_PART, crowd.answers, len(prompts), NUM_TOKENS)
        yield leavers_check(_PART, crowd.left_early, crowd.left_midway)
        yield refusal_check(_PART, crowd.refusals, len(bad))
        yield faults_check(_PART, reading.by_label(ERRORS, "reason"), reading.totals.get(_ACCEPTED))
        yield freeze_check(_PART, stopped, reading.totals.get(_TOKENS, 0.0) - at_last_stop)
        yield idle_check(_PART, reading)
        yield ending_check(_PART, server.terminate())
    yield log_check(_PART, log.read_text(errors="replace"))

    with WatchedServer(
        model_path("target"),
        environment={SWITCH: "0"},
        log_path=settings.out / "plain-server.log",
        console=settings.console,
    ) as server:
        plain = PlainServer(server.base_url, server.model)
        with settings.console.status("the same prompts without speculation"):
            expected = plain.expected(prompts)
            yield agreement_check(_PART, compare(crowd.answers, expected, plain.gap))
        plain.close()


def _always_drafting(config: Path, path: Path) -> str:
    """A file of the same proposers, exact, that always draft: a policy might find that it does not pay."""
    data = load_config(config).model_dump(mode="json", include={"proposer"})
    data["draft_length"] = {"policy": "fixed", "tokens": _DRAFT_TOKENS}
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return str(path)


def _context(server: WatchedServer) -> int:
    """Most tokens of a prompt and its output."""
    answer = httpx.get(f"{server.base_url}/v1/models", trust_env=False)
    answer.raise_for_status()
    return int(answer.json()["data"][0]["max_model_len"])


def _among_freezes(server: WatchedServer, crowd: Crowd, settings: Settings) -> tuple[list[float], float]:
    """Lets the crowd ask, and stops the worker now and then.

    Returns:
        The seconds of each stop, and the tokens that had been made by the end of the last one.
    """
    worker = server.worker()
    stopped = []
    tokens = 0.0
    start = time.monotonic()

    with shown_time(_PART, settings.chaos_seconds, settings.console) as show:

        def wait_until(moment: float, what: str = "") -> None:
            while time.monotonic() < start + moment:
                left = crowd.left_early + crowd.left_midway
                show(f"{len(crowd.answers)} answers, {left} clients left, {len(crowd.refusals)} refusals{what}")
                time.sleep(_POLL_SECONDS)

        for begin, end in freezes(settings.chaos_seconds):
            wait_until(begin)
            since = time.monotonic()
            worker.send_signal(signal.SIGSTOP)
            try:
                wait_until(end, ", the worker stands still")
                tokens = ServerMetrics.parse(read_text(server.base_url)).totals.get(_TOKENS, 0.0)
            finally:
                worker.send_signal(signal.SIGCONT)
            stopped.append(time.monotonic() - since)
        wait_until(settings.chaos_seconds)
    return stopped, tokens
