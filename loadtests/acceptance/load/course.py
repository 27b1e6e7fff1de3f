"""Runs Locust's users along a course."""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from loadtests.acceptance.child import child, last_line
from loadtests.acceptance.load.checks import load_checks
from loadtests.acceptance.metrics import idle_check, read_text, settled_text
from loadtests.acceptance.progress import shown_time
from loadtests.acceptance.settings import Settings
from loadtests.acceptance.verdicts import Verdict
from vllm_spec_plugin.tools.server_metrics import ServerMetrics

# Users finish the request that they are at, so that the server's counts can be compared to the last token.
_STOP_SECONDS = 120
_START_SECONDS = 60
_POLL_SECONDS = 1.0
_SHOWN = ("request_success_total", "generation_tokens_total", "num_requests_running", "num_requests_waiting")


def run_course(course: str, base_url: str, settings: Settings, *, has_plugin: bool) -> Iterator[Verdict]:
    """Runs users along a course, and judges what came of it.

    Args:
        course: its name.
        base_url: of the server.
        settings: how many users, for how long.
        has_plugin: see `load_checks`.
    """
    before = ServerMetrics.parse(settled_text(base_url))
    status = _run_locust(course, base_url, settings)
    after = ServerMetrics.parse(settled_text(base_url))
    try:
        report = json.loads((settings.out / f"{course}.json").read_text())
    except (OSError, ValueError) as error:
        figures = f"{error}; Locust's last line: {last_line(settings.out / f'{course}.log')}"
        yield Verdict(course, "Locust writes its report", False, figures)
        return
    yield from load_checks(course, report, status, before, after, has_plugin=has_plugin)
    yield idle_check(course, after)


def _run_locust(course: str, base_url: str, settings: Settings) -> int | None:
    """Locust's exit status; None if it did not end in time."""
    prefix = settings.out / course
    for old in (prefix.with_suffix(".json"), prefix.with_suffix(".html")):
        old.unlink(missing_ok=True)
    command = [
        *(sys.executable, "-m", "locust", "--headless", "--only-summary"),
        *("-f", f"loadtests/locustfile.py,loadtests/shapes/{course}.py"),
        *("--host", base_url, "-u", str(settings.users), "-t", f"{settings.seconds:.0f}s"),
        *("--stop-timeout", str(_STOP_SECONDS)),
        *("--report", f"{prefix}.json", "--report-html", f"{prefix}.html", "--csv", str(prefix)),
    ]
    start = time.monotonic()
    with (
        shown_time(course, settings.seconds, settings.console) as show,
        child(command, settings.out / f"{course}.log") as locust,
    ):
        first = last = _Counted.now(base_url)
        while locust.poll() is None:
            time.sleep(_POLL_SECONDS)
            if time.monotonic() - start > _START_SECONDS + settings.seconds + _STOP_SECONDS:
                return None
            now = _Counted.now(base_url)
            show(now.since(first, last))
            last = now
        return locust.returncode


@dataclass(frozen=True)
class _Counted:
    """What the server says of its work, at a moment in seconds."""

    moment: float
    answered: float
    tokens: float
    in_flight: float

    @classmethod
    def now(cls, base_url: str) -> Self:
        values = ServerMetrics.parse(read_text(base_url)).totals
        answered, tokens, running, waiting = (values.get(f"vllm:{name}", 0.0) for name in _SHOWN)
        return cls(time.monotonic(), answered, tokens, running + waiting)

    def since(self, first: Self, last: Self) -> str:
        """In words, after two earlier ones."""
        rate = (self.tokens - last.tokens) / (self.moment - last.moment)
        answered = self.answered - first.answered
        return f"{answered:.0f} requests answered, {self.in_flight:.0f} in flight, {rate:.0f} tokens/s"
