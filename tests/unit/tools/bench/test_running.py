"""What a benchmark shows while it runs."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from vllm_spec_plugin.tools.bench import running
from vllm_spec_plugin.tools.bench.arms import PlannedArm
from vllm_spec_plugin.tools.bench.engine_args import ArmPlan
from vllm_spec_plugin.tools.bench.running import shown_progress


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


def test_arms_of_one_engine_start_it_once_and_engines_share_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def no_process(arguments: dict[str, Any], *rest: Any) -> Iterator[dict[str, str]]:
        started.append(arguments)
        yield {name: name.upper() for name in arguments}

    monkeypatch.setattr(running, "started_arms", no_process)
    shared = ArmPlan("fixed.yaml", 4, {})
    arms = {"none": PlannedArm(ArmPlan(None, 0, None)), "a": PlannedArm(shared, 1), "b": PlannedArm(shared, 4)}
    with running.running_engines(arms, "target", 3, False, tmp_path, Console(file=io.StringIO())) as engines:
        assert {name: str(engine) for name, engine in engines.items()} == {"none": "NONE", "a": "A, B", "b": "A, B"}
    (arguments,) = started
    assert [values["gpu_memory_utilization"] for values in arguments.values()] == [0.4, 0.4]


def test_without_a_terminal_there_is_a_line_per_engine_that_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "Arm", lambda name, *rest: contextlib.nullcontext(name.upper()))
    written = io.StringIO()
    with running.started_arms({"none": {}, "a [b]": {}}, {}, tmp_path, Console(file=written)) as arms:
        assert list(map(str, arms.values())) == ["NONE", "A [B]"]
    assert written.getvalue().splitlines() == [
        "starting arm 1/2: none (about a minute)",
        "starting arm 2/2: a [b] (about a minute)",
    ]
