"""Arms as processes, with a script instead of an engine; real ones are in tests/engine."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.processes import is_running
from vllm_spec_tools.bench.arm import Arm
from vllm_spec_tools.bench.records import Job
from vllm_spec_tools.engine_child import EngineError

JOB = Job(("a",), 0.0, 4, 0)


class ScriptArm(Arm):
    """An arm that answers with the question."""

    module = "tests.unit.tools.bench.scripted_arm"


def arm(folder: Path, model: str = "some") -> Any:
    return ScriptArm("scripted", {"model": model}, os.environ, folder / "arm")


def test_each_question_names_what_the_engine_does(tmp_path: Path) -> None:
    with arm(tmp_path) as scripted:
        assert scripted.run(JOB) == ("run", JOB)
        assert scripted.top_two("a", (1, 2)) == ("top_two", "a", [1, 2])


def test_an_interrupt_ends_the_process(tmp_path: Path) -> None:
    pids = []

    def interrupted() -> None:
        with arm(tmp_path) as scripted:
            pids.append(scripted.facts()["pid"])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not is_running(pids[0])


def test_an_arm_that_does_not_start_says_why_when_entered(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"^arm scripted did not start: no weights; the end of its log:\n.*Traceback"):
        arm(tmp_path, "none").__enter__()
    with pytest.raises(EngineError, match=r"^arm scripted did not start: no such runner$"):
        arm(tmp_path / "other", "refused").__enter__()
