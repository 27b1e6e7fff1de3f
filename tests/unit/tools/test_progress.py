"""What is shown of runs that take minutes."""

import io

from rich.console import Console

from vllm_spec_plugin.tools.progress import Stages, shown_progress


def test_without_a_terminal_there_is_a_line_per_run() -> None:
    written = io.StringIO()
    with shown_progress(2, Console(file=written)) as on_run:
        on_run(0, "warming up: none")
        on_run(1, "round 1/1: [optimal]")
    assert written.getvalue().splitlines() == ["0/2, 0:00: warming up: none", "1/2, 0:00: round 1/1: [optimal]"]


def stages_shown(is_terminal: bool) -> list[tuple[int, str]]:
    """Of a stage with runs 4 seconds apart."""
    said: list[tuple[int, str]] = []
    now = 0.0
    stages = Stages(lambda done, text: said.append((done, text)), is_terminal=is_terminal, clock=lambda: now)
    stages.begin("stage")
    for run in range(8):
        stages.on_run(str(run))
        now += 4
    return said


def test_a_terminal_shows_every_run_of_a_stage() -> None:
    assert stages_shown(is_terminal=True) == [(0, "stage"), *((run, f"stage: {run}") for run in range(8))]


def test_elsewhere_there_is_a_line_every_fifteen_seconds() -> None:
    assert stages_shown(is_terminal=False) == [(0, "stage"), (4, "stage: 4")]
