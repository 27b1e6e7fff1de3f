"""Groups of options: dataclasses whose fields are options of several commands."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.testing import CliRunner

from vllm_spec_plugin.cli.options import ReportFiles, grouped


@dataclass(frozen=True)
class Size:
    """A group."""

    width: Annotated[int, typer.Option("--wide", min=1)] = 2
    height: Annotated[int, typer.Option(min=1)] = 3


def run(*words: str) -> tuple[int, dict[str, Any], str]:
    seen: dict[str, Any] = {}
    app = typer.Typer()

    @app.command()
    @grouped
    def command(name: str, times: int = 1, *, size: Size, files: ReportFiles) -> None:
        """Does something."""
        seen.update(name=name, times=times, size=size, files=files)

    result = CliRunner().invoke(app, words)
    return result.exit_code, seen, result.output


def test_a_field_is_an_option_with_its_default_and_its_limits() -> None:
    status, seen, _ = run("a", "--wide", "7", "--png", "b.png")
    assert status == 0
    assert (seen["name"], seen["times"], seen["size"]) == ("a", 1, Size(7, 3))
    assert seen["files"] == ReportFiles(png=Path("b.png"))
    assert run("a", "--height", "0")[0] == 2


def test_the_help_has_the_commands_text_and_all_options() -> None:
    status, _, shown = run("--help")
    assert status == 0
    assert all(word in shown for word in ("Does something", "--wide", "--height", "--times", "--markdown", "--html"))


def test_files_that_cannot_be_written_are_refused_before_the_command_runs(tmp_path: Path) -> None:
    status, seen, _ = run("a", "--html", str(tmp_path / "none" / "a.html"))
    assert status != 0
    assert not seen
