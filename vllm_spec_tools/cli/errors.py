"""Ends failed commands with one message, without a traceback, and an exit status."""

import errno
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from typer.core import TyperGroup

from vllm_spec_plugin.schema.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from vllm_spec_tools.report import Pages, Report


# Modules that only some commands need, and the extra that installs them.
EXTRAS = {
    "scipy": "plan",
    "matplotlib": "plot",
    "pandas": "report",
    "locust": "loadtest",
    "gguf": "fetch",
    "accelerate": "fetch",
}


class Commands(TyperGroup):
    """Commands that print user errors as one message and exit with status 2.

    A terminated command cleans up and stops its engines, like an interrupted one.
    """

    def invoke(self, ctx: Any) -> Any:
        """Runs a command."""
        before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        try:
            return super().invoke(ctx)
        except UserError as error:
            fail(str(error), 2)
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader of a pipe has seen enough; click ends the command
                raise
            fail(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error), 2)
        except ModuleNotFoundError as error:
            module = (error.name or "").partition(".")[0]
            if module not in EXTRAS:
                raise
            needs_extra(module)
        finally:
            signal.signal(signal.SIGTERM, before)


def fail(message: str, status: int) -> NoReturn:
    """Prints an error message, and ends the command.

    Raises:
        Exit: always, with `status`.
    """
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(status) from None


def needs_extra(module: str) -> NoReturn:
    """Ends a command that needs a module which is not installed.

    Raises:
        Exit: always, with status 2.
    """
    fail(f"this command needs {module}; install it: pip install 'vllm-spec-tools[{EXTRAS[module]}]'", 2)


def new_console(*, stderr: bool = False) -> "Console":
    """Creates a console that prints `:name:` unchanged; `rich.markup.escape` does not prevent emoji."""
    from rich.console import Console

    return Console(stderr=stderr, emoji=False)


def write_or_fail(report: "Report", files: "Pages") -> None:
    """Writes a report to the terminal and to files.

    Raises:
        Exit: it has problems.
    """
    from vllm_spec_tools.report import write

    write(report, terminal=new_console(), **vars(files))
    if report.problems:
        fail("; ".join(report.problems), 1)
