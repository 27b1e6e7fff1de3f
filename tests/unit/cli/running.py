"""Runs commands as a user does, in this process."""

from pathlib import Path

import typer
from typer.testing import CliRunner, Result

from vllm_spec_tools.cli import app


def run(
    *arguments: str | Path, input: str | bytes | None = None, columns: int = 200, program: typer.Typer = app
) -> Result:
    """The result of a command line, whose end must be a regular one: no exception gets out."""
    result = CliRunner().invoke(program, [*map(str, arguments)], input=input, env={"COLUMNS": str(columns)})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def assert_mistake(result: Result, message: str) -> None:
    """It is told on standard error without a traceback, before anything is printed; the exit status is 2."""
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.stderr
