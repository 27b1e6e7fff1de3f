"""Runs Locust's users along a course."""

import json
import sys
import time
from collections.abc import Iterator

import httpx

from loadtests.acceptance.child import child, last_line
from loadtests.acceptance.load.checks import load_checks
from loadtests.acceptance.metrics import idle_check, read_text, settled_text
from loadtests.acceptance.progress import shown_time
from loadtests.acceptance.settings import Settings
from loadtests.acceptance.verdicts import Verdict
from loadtests.load.courses import COURSES
from loadtests.server.counters import Reading

# Users finish the request that they are at, so that the server's counts can be compared to the last token.
_STOP_SECONDS = 120
_START_SECONDS = 60
_POLL_SECONDS = 1.0


def run_course(course: str, base_url: str, settings: Settings, *, has_plugin: bool) -> Iterator[Verdict]:
    """Runs users along a course, and judges what came of it.

    Args:
        course: its name.
        base_url: of the server.
        settings: how many users, for how long.
        has_plugin: see `load_checks`.
    """
    before = Reading.of(settled_text(base_url))
    status = _run_locust(course, base_url, settings)
    after = Reading.of(settled_text(base_url))
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
        *("--report", f"{prefix}.json", "--csv", str(prefix)),
    ]
    users = COURSES[course](settings.users, settings.seconds)
    start = time.monotonic()
    with (
        shown_time(course, settings.seconds, settings.console) as show,
        child(command, settings.out / f"{course}.log") as locust,
    ):
        first = last = _counted(base_url)
        while locust.poll() is None:
            time.sleep(_POLL_SECONDS)
            elapsed = time.monotonic() - start
            if elapsed > _START_SECONDS + settings.seconds + _STOP_SECONDS:
                return None
            now = _counted(base_url) or last
            if now is not None and last is not None and first is not None:
                there = users.users(elapsed) if elapsed < settings.seconds else 0
                rate = (now[1] - last[1]) / max(now[2] - last[2], _POLL_SECONDS)
                show(f"{there} users, {now[0] - first[0]:.0f} requests answered, {rate:.0f} tokens/s")
            last = now
        return locust.returncode


def _counted(base_url: str) -> tuple[float, float, float] | None:
    """Requests and tokens so far, and when that was; None if the server did not answer."""
    try:
        values = Reading.of(read_text(base_url)).values
    except httpx.HTTPError:
        return None
    names = ("vllm:request_success_total", "vllm:generation_tokens_total")
    requests, tokens = (values.get(name, 0.0) for name in names)
    return requests, tokens, time.monotonic()
