"""Ends failed commands with one message, without a traceback, and an exit status."""

import signal
import sys
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from vllm_spec_plugin.schema.errors import UserError


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
            fail(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error), 2)
        finally:
            signal.signal(signal.SIGTERM, before)


def fail(message: str, status: int) -> NoReturn:
    """Prints an error message, and ends the command.

    Raises:
        Exit: always, with `status`.
    """
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(status) from None
