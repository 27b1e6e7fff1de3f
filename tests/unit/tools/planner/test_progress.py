"""What is shown of runs that take minutes."""

from vllm_spec_plugin.tools.planner.progress import Stages


def shown(is_terminal: bool) -> list[tuple[int, str]]:
    """Of a stage with runs 4 seconds apart."""
    said: list[tuple[int, str]] = []
    now = 0.0
    stages = Stages(lambda done, text: said.append((done, text)), is_terminal=is_terminal, clock=lambda: now)
    stages.begin("stage")
    for run in range(8):
        stages.on_run(str(run))
        now += 4
    return said


def test_a_terminal_shows_every_run() -> None:
    assert shown(is_terminal=True) == [(0, "stage"), *((run, f"stage: {run}") for run in range(8))]


def test_elsewhere_there_is_a_line_every_fifteen_seconds() -> None:
    assert shown(is_terminal=False) == [(0, "stage"), (4, "stage: 4")]
