"""How a benchmark ends that does not go well."""

import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console


@contextlib.contextmanager
def told_errors(console: "Console") -> Iterator[None]:
    """Turns what goes wrong into a line and an exit status: 2 for bad input, 1 for an engine that ended.

    A terminated run takes its engines along, as an interrupted one does.
    """
    from vllm_spec_plugin.config import ConfigError
    from vllm_spec_plugin.tools.bench.arms import ArmError
    from vllm_spec_plugin.tools.bench.input import InputError
    from vllm_spec_plugin.tools.serving import ServerError

    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    except (InputError, ConfigError, ServerError) as error:
        fail(str(error), console, 2)
    except (ArmError, OSError) as error:
        fail(str(error), console, 1)
    finally:
        signal.signal(signal.SIGTERM, before)


def fail(message: str, console: "Console", status: int) -> NoReturn:
    """Says what is wrong, and ends the command.

    Raises:
        Exit: with that status.
    """
    from rich.markup import escape

    console.print(f"[red]error:[/red] {escape(message)}", soft_wrap=True)
    raise typer.Exit(status) from None
