"""Tests the progress shown for runs that take minutes."""

import io

from rich.console import Console

from vllm_spec_tools.progress import Runs, Tasks, shown_engines, shown_runs


def test_a_terminal_has_a_bar_with_count_and_time_that_cuts_the_rest() -> None:
    written = io.StringIO()
    with shown_runs(1234, Console(file=written, force_terminal=True, width=80, color_system=None)) as runs:
        runs.on_run("round 1/7: vLLM's draft_model, K = 4, [less] in larger batches, edit at 0.7, 8 streams")
    line = written.getvalue().split("\x1b[2K")[2].splitlines()[0]
    assert len(line) <= 80
    assert "1234/1234 0:00:00 0:00:00 round 1/7: vLLM's draft_model" in line
    assert line.rstrip().endswith("\u2026")


def test_elsewhere_there_is_a_line_per_stage_and_every_fifteen_seconds() -> None:
    written, now = io.StringIO(), 0.0
    runs = Runs(Console(file=written), 9, print, clock=lambda: now)
    for stage in ("one", "[two]"):
        runs.begin(stage)
        for number in range(4):
            now += 5
            runs.on_run(str(number))
    lines = ["0/9, 0:00: one", "2/9, 0:15: one: 2", "4/9, 0:20: [two]", "6/9, 0:35: [two]: 2"]
    assert written.getvalue().splitlines() == lines
    with shown_engines(Console(file=written)) as say:
        say("[fixed]: greedy")
    assert written.getvalue().splitlines()[4:] == ["0:00 starting engines", "0:00 [fixed]: greedy"]


def test_a_task_without_a_terminal_says_once_a_minute_how_long_it_will_take() -> None:
    written, now = io.StringIO(), 0.0
    with Tasks(Console(file=written), lambda: now) as tasks, tasks.task("training", 1000) as advance:
        for done in (100, 200, 300):
            now += 40
            advance(done, "loss 2.50")
    assert written.getvalue().splitlines() == ["training", "training: 200/1,000, 5:20 left, loss 2.50"]
