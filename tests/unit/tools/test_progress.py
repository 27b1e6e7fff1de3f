"""What is shown of runs that take minutes."""

import io

from rich.console import Console

from vllm_spec_tools.progress import Stages, Tasks, shown_engines, shown_progress


def test_without_a_terminal_there_is_a_line_per_run() -> None:
    written = io.StringIO()
    with shown_progress(2, Console(file=written)) as on_run:
        on_run(0, "warming up: none")
        on_run(1, "round 1/1: [optimal]")
    assert written.getvalue().splitlines() == ["0/2, 0:00: warming up: none", "1/2, 0:00: round 1/1: [optimal]"]


def test_in_a_terminal_there_is_a_bar_that_goes_away() -> None:
    written = io.StringIO()
    with shown_progress(2, Console(file=written, force_terminal=True, width=100)) as on_run:
        on_run(1, "round 1/1: [none]")
    assert "round 1/1: [none]" in written.getvalue()
    assert "2/2" in written.getvalue()


def test_engines_side_by_side_say_what_they_do() -> None:
    written = io.StringIO()
    with shown_engines(Console(file=written)) as say:
        say("fixed draft length: greedy")
    assert written.getvalue().splitlines() == ["0:00 starting engines", "0:00 fixed draft length: greedy"]


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


def test_a_task_without_a_terminal_says_once_a_minute_how_long_it_will_take() -> None:
    written, now = io.StringIO(), 0.0
    with Tasks(Console(file=written), lambda: now) as tasks, tasks.task("training", 1000) as advance:
        for done in (100, 200, 300):
            now += 40
            advance(done, "loss 2.50")
    assert written.getvalue().splitlines() == ["training", "training: 200/1,000, 5:20 left, loss 2.50"]
