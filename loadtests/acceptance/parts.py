"""The parts of the test, and which of them share a server."""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from enum import StrEnum
from functools import partial

import httpx
import typer

from loadtests.acceptance.compare.client_process import ClientError
from loadtests.acceptance.compare.run import run_compare
from loadtests.acceptance.load.course import run_course
from loadtests.acceptance.served import WatchedServer, ending_check
from loadtests.acceptance.server_log import log_check
from loadtests.acceptance.settings import Settings
from loadtests.acceptance.verdicts import Verdict
from vllm_spec_plugin.tools.demo import model_path
from vllm_spec_plugin.tools.server_metrics import ExpositionError
from vllm_spec_plugin.tools.serving import ServerError


class Part(StrEnum):
    """What can be asked for by itself."""

    RAMP = "ramp"
    SPIKE = "spike"
    COMPARE = "compare"
    CHAOS = "chaos"


COURSES = (Part.RAMP, Part.SPIKE)


def run_parts(chosen: Collection[Part], host: str, settings: Settings) -> Generator[Verdict, None, None]:
    """Makes parts, one after the other.

    A part that can't be carried out is a check that failed; the reason goes to standard error, and the next one has
    its turn.

    Args:
        chosen: which.
        host: URL of a server that is there; empty to start one.
        settings: of all parts.
    """
    courses = [part for part in COURSES if part in chosen]
    if host:
        for course in courses:
            yield from _guarded(course, partial(run_course, course, host, settings, has_plugin=False))
    elif courses or Part.COMPARE in chosen:
        yield from _guarded("server", partial(_served, chosen, settings))
    if Part.CHAOS in chosen:
        yield from _guarded(Part.CHAOS, partial(_chaos, settings))


def _served(chosen: Collection[Part], settings: Settings) -> Iterator[Verdict]:
    """The parts that share a server, and its end."""
    log = settings.out / "server.log"
    with WatchedServer(model_path("target"), str(settings.config), log_path=log, console=settings.console) as server:
        for course in COURSES:
            if course in chosen:
                work = partial(run_course, course, server.base_url, settings, has_plugin=True)
                yield from _guarded(course, work)
        if Part.COMPARE in chosen:
            yield from _guarded(Part.COMPARE, partial(run_compare, server.base_url, server.model, settings))
        yield ending_check("server", server.terminate())
    yield log_check("server", log.read_text(errors="replace"))


def _chaos(settings: Settings) -> Iterator[Verdict]:
    # Faults of proposers are made of tensors, and torch takes its time.
    from loadtests.acceptance.chaos.run import run_chaos

    return run_chaos(settings)


def _guarded(name: str, work: Callable[[], Iterable[Verdict]]) -> Iterator[Verdict]:
    try:
        yield from work()
    except (ServerError, ClientError, ExpositionError, httpx.HTTPError) as error:
        typer.echo(f"error: {name}: {error}", err=True)
        first = next(iter(str(error).splitlines()), repr(error))
        yield Verdict(name, "can be carried out", False, first)
