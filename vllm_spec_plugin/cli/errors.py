"""How commands end that do not go well: one line, and an exit status."""

import signal
import sys
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from vllm_spec_plugin.schema.errors import UserError


class Commands(TyperGroup):
    """Commands that print what is wrong as one line: exit status 2 is bad input, 1 that something else failed.

    A terminated command cleans up and takes its engines along, as an interrupted one does.
    """

    def invoke(self, ctx: Any) -> Any:
        """Runs a command."""
        before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        try:
            return super().invoke(ctx)
        except UserError as error:
            fail(str(error), error.exit_status)
        except OSError as error:
            fail(str(error), 1)
        finally:
            signal.signal(signal.SIGTERM, before)


def fail(message: str, status: int) -> NoReturn:
    """Says what is wrong, and ends the command.

    Raises:
        Exit: with that status.
    """
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(status) from None
