"""What a benchmark shows while it runs."""

import io

from rich.console import Console

from vllm_spec_plugin.bench.running import shown_progress


def test_without_a_terminal_there_is_a_line_per_run() -> None:
    written = io.StringIO()
    with shown_progress(2, Console(file=written)) as on_run:
        on_run(0, "warming up: none")
        on_run(1, "round 1/1: [optimal]")
    assert written.getvalue().splitlines() == ["0/2, 0:00: warming up: none", "1/2, 0:00: round 1/1: [optimal]"]


def test_in_a_terminal_there_is_a_bar_that_goes_away() -> None:
    written = io.StringIO()
    with shown_progress(2, Console(file=written, force_terminal=True, width=100)) as on_run:
        on_run(1, "round 1/1: none")
    assert "round 1/1: none" in written.getvalue()
    assert "1/2" in written.getvalue()
