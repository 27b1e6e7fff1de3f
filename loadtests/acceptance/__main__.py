"""`python -m loadtests.acceptance`: serves the bundled models, and proves how they behave under load."""

import contextlib
import signal
import sys
import time
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from loadtests.acceptance.parts import COURSES, Part, run_parts
from loadtests.acceptance.settings import Settings
from loadtests.acceptance.verdicts import Verdict, all_passed, summary_json, summary_table
from vllm_spec_plugin.config import load_config
from vllm_spec_plugin.schema.errors import ConfigError


def main(
    only: Annotated[
        list[Part] | None, typer.Option(help="Make this part only; can be given several times. [default: all]")
    ] = None,
    config: Annotated[Path, typer.Option(help="The plugin.yaml to serve.")] = Path("configs/cascade.yaml"),
    users: Annotated[int, typer.Option(min=1, help="Most users of ramp and spike.")] = 64,
    seconds: Annotated[float, typer.Option(min=1, help="Length of ramp, and of spike.")] = 90.0,
    chaos_seconds: Annotated[float, typer.Option(min=1, help="Length of the chaos.")] = 30.0,
    host: Annotated[
        str, typer.Option(help="Put load on this running server, http://HOST:PORT: ramp and spike, no look at its end.")
    ] = "",
    out: Annotated[Path, typer.Option(help="Folder for reports, logs and summary.json.")] = Path("loadtest-results"),
) -> None:
    """Serve the bundled target with drafts, put it under load and among faults, and check what comes of it.

    The exit status is 0 if all checks pass, 1 if one fails.
    """
    chosen = set(only or (COURSES if host else Part))
    if host and not chosen <= {*COURSES}:
        _refuse(f"--host is for {' and '.join(COURSES)}, not for --only {', '.join(sorted(chosen - {*COURSES}))}")
    if not host:
        try:
            load_config(config)
        except ConfigError as error:
            _refuse(str(error))
    out.mkdir(parents=True, exist_ok=True)
    # A terminated test takes its servers along, as an interrupted one does.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))

    console = Console()
    settings = Settings(config.resolve(), users, seconds, chaos_seconds, out.resolve(), Console(stderr=True))
    verdicts: list[Verdict] = []
    start = time.monotonic()
    # Closed at once, and not some time later: this is what ends servers.
    with contextlib.closing(run_parts(chosen, host.rstrip("/"), settings)) as found:
        for verdict in found:
            verdicts.append(verdict)
            console.print(verdict.line(), soft_wrap=True, highlight=False)
    took = time.monotonic() - start
    console.print()
    console.print(summary_table(verdicts, took))
    options = {
        "parts": sorted(chosen),
        "config": None if host else str(config),
        "users": users,
        "seconds": seconds,
        "chaos_seconds": chaos_seconds,
        "host": host or None,
    }
    summary = out / "summary.json"
    summary.write_text(summary_json(verdicts, took, options))
    console.print(f"{summary} has this, {out} the reports and logs.", soft_wrap=True, highlight=False)
    if not all_passed(verdicts):
        raise typer.Exit(1)


def _refuse(what: str) -> NoReturn:
    typer.echo(f"error: {what}", err=True)
    raise typer.Exit(2)


if __name__ == "__main__":
    typer.run(main)
