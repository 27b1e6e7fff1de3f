"""`python -m tests.acceptance`: proves how the served engine behaves under load and among faults."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import httpx
import typer
from rich.console import Console

from tests.acceptance.load import run_profile
from tests.acceptance.served import WatchedServer, ending_check, log_check
from tests.acceptance.verdicts import Settings, Verdict, report_of
from vllm_spec_plugin.config import load_config
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.schema.errors import ConfigError, UserError
from vllm_spec_tools.cli.errors import fail
from vllm_spec_tools.engines.serving import runs_on_cpu
from vllm_spec_tools.report import write
from vllm_spec_tools.report.provenance import provenance


class Part(StrEnum):
    """A part of the test that can be run by itself."""

    RAMP = "ramp"
    SPIKE = "spike"
    CHAOS = "chaos"


PROFILES = (Part.RAMP, Part.SPIKE)


def run_parts(chosen: Collection[Part], host: str, settings: Settings) -> Generator[Verdict, None, None]:
    """Runs parts one after the other.

    A part that cannot be run is a failed check; the reason goes to standard error, and the next part follows.

    Args:
        host: URL of a running server; empty to start one.
    """
    profiles = [part for part in PROFILES if part in chosen]
    if host:
        for profile in profiles:
            yield from _guarded(profile, partial(run_profile, profile, host, settings, has_plugin=False))
    elif profiles:
        yield from _guarded("server", partial(_served, chosen, settings))
    if Part.CHAOS in chosen:
        yield from _guarded(Part.CHAOS, partial(_chaos, settings))


def _served(chosen: Collection[Part], settings: Settings) -> Iterator[Verdict]:
    """The parts that share a server, and its end."""
    log = settings.out / "server.log"
    with WatchedServer(
        model_path("target"),
        str(settings.config),
        extra_args=settings.server_arguments,
        environment=settings.server_environment,
        log_path=log,
        console=settings.console,
    ) as server:
        for profile in PROFILES:
            if profile in chosen:
                yield from _guarded(profile, partial(run_profile, profile, server.base_url, settings, has_plugin=True))
        yield ending_check("server", server.terminate())
    yield log_check("server", log.read_text(errors="replace"))


def _chaos(settings: Settings) -> Iterator[Verdict]:
    # Faults of proposers are tensors, and torch takes seconds to import.
    from tests.acceptance.chaos.run import run_chaos

    return run_chaos(settings)


def _guarded(name: str, work: Callable[[], Iterable[Verdict]]) -> Iterator[Verdict]:
    try:
        yield from work()
    except (UserError, httpx.HTTPError) as error:
        typer.echo(f"error: {name}: {error}", err=True)
        first = next(iter(str(error).splitlines()), repr(error))
        yield Verdict(name, "can be carried out", False, first)


def main(
    only: Annotated[
        list[Part] | None, typer.Option(help="Run this part only; can be given several times. [default: all]")
    ] = None,
    config: Annotated[Path, typer.Option(help="The plugin.yaml to serve.")] = Path("configs/cascade.yaml"),
    users: Annotated[int, typer.Option(min=1, help="Maximum users of ramp and spike.")] = 64,
    processes: Annotated[int, typer.Option(min=1, help="Locust's worker processes.")] = 1,
    seconds: Annotated[float, typer.Option(min=1, help="Length of ramp, and of spike.")] = 90.0,
    chaos_seconds: Annotated[float, typer.Option(min=1, help="Length of the chaos.")] = 30.0,
    host: Annotated[str, typer.Option(help="Running server to load, http://HOST:PORT: ramp and spike only.")] = "",
    tensor_parallel_size: Annotated[
        int, typer.Option(min=1, help="Tensor-parallel size of the servers with speculation.")
    ] = 1,
    out: Annotated[Path, typer.Option(help="Folder for reports, logs and summary.json.")] = Path("loadtest-results"),
) -> None:
    """Serve the bundled target with speculation, load it, inject faults, and check the results.

    The exit status is 0 if all checks pass, 1 if one fails.
    """
    chosen = set(only or (PROFILES if host else Part))
    if host and not chosen <= {*PROFILES}:
        fail(f"--host is for {' and '.join(PROFILES)}, not for --only {', '.join(sorted(chosen - {*PROFILES}))}", 2)
    if not host:
        try:
            load_config(config)
        except ConfigError as error:
            fail(str(error), 2)
        cores = len(os.sched_getaffinity(0))
        if runs_on_cpu() and tensor_parallel_size > cores:
            fail(f"--tensor-parallel-size {tensor_parallel_size}: each rank needs a core; allowed: up to {cores}", 2)
    out.mkdir(parents=True, exist_ok=True)
    # SIGTERM ends the servers of the test too, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))

    console = Console()
    settings = Settings(
        config.resolve(),
        users,
        processes,
        seconds,
        chaos_seconds,
        out.resolve(),
        Console(stderr=True),
        tensor_parallel_size,
    )
    verdicts: list[Verdict] = []
    start = time.monotonic()
    # Closed at once: this ends servers.
    with contextlib.closing(run_parts(chosen, host.rstrip("/"), settings)) as found:
        for verdict in found:
            verdicts.append(verdict)
            console.print(f"{verdict.outcome}  {verdict}", soft_wrap=True, highlight=False, markup=False)
    console.print()
    models = {} if host else {"target": str(model_path("target")), "config": str(config)}
    origin = provenance(sys.argv[1:], 0, (), models, "python -m tests.acceptance", ("locust",))
    report = report_of(verdicts, time.monotonic() - start, origin)
    write(report, terminal=console, json=out / "summary.json", html=out / "summary.html")
    console.print(f"Reports and logs: {out}", soft_wrap=True, highlight=False, markup=False)
    if not report.data["passed"]:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
