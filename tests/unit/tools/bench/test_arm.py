"""Arms as processes, with small scripts instead of engines; real ones are in tests/engine."""

import os
import select
import sys
import time
from pathlib import Path

import pytest

from tests.unit.processes import is_running
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_plugin.tools.bench.arm import Arm
from vllm_spec_plugin.tools.bench.records import Job

JOB = Job(("a",), 0.0, 4, 0)
START = "import json, os, sys, time\nout = os.fdopen(int(sys.argv[1]), 'w')\nprint('a log line', flush=True)\n"
READY = START + "print(json.dumps({'pid': os.getpid()}), file=out, flush=True)\n"
ANSWERING = READY + (
    "for line in sys.stdin:\n"
    "    prompts = json.loads(line)['run']['prompts']\n"
    "    answer = dict(seconds=0.5, cpu_seconds=0.5, prompt_token_ids=[[1]], token_ids=[list(range(100_000))],\n"
    "                  steps=[], num_drafts=1, num_draft_tokens=4, num_accepted_tokens=2)\n"
    "    print(json.dumps(answer), file=out, flush=True)\n"
)


class ScriptArm(Arm):
    """An arm whose process runs a script."""

    def __init__(self, script: str, folder: Path) -> None:
        super().__init__("scripted", {"model": "some"}, os.environ, folder / "arm")
        self.script = script

    def command(self, file_descriptor: int) -> list[str]:
        return [sys.executable, "-c", self.script, str(file_descriptor)]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_answers_of_any_length_come_back(tmp_path: Path) -> None:
    with ScriptArm(ANSWERING, tmp_path) as arm:
        for _ in range(2):
            answer = arm.run(JOB)
            assert answer.token_ids == [list(range(100_000))]
            assert (answer.num_drafts, answer.num_accepted_tokens, answer.parts) == (1, 2, {})


def test_leaving_ends_the_process_and_closes_its_files(tmp_path: Path) -> None:
    before = open_files()
    with ScriptArm(READY + "time.sleep(600)", tmp_path) as arm:
        pid = arm.facts["pid"]
        assert is_running(pid)
    assert not is_running(pid)
    assert open_files() == before


def test_leaving_ends_what_the_process_started(tmp_path: Path) -> None:
    child = "import subprocess\np = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    script = START + child + "print(json.dumps({'pid': p.pid}), file=out, flush=True)\ntime.sleep(600)"
    with ScriptArm(script, tmp_path) as arm:
        pid = arm.facts["pid"]
        assert is_running(pid)
    deadline = time.monotonic() + 5
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_running(pid)


def test_an_interrupt_ends_the_process(tmp_path: Path) -> None:
    pids = []

    def interrupted() -> None:
        with ScriptArm(READY + "time.sleep(600)", tmp_path) as arm:
            pids.append(arm.facts["pid"])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not is_running(pids[0])


def test_an_arm_that_does_not_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    script = START + "print('no weights', file=sys.stderr)\nsys.exit(3)"
    with pytest.raises(UserError, match=r"arm scripted ended with exit status 3; .*\n  \| a log line\n  \| no weights"):
        ScriptArm(script, tmp_path).__enter__()


def test_an_arm_that_dies_at_work_shows_the_end_of_its_log(tmp_path: Path) -> None:
    script = READY + "sys.stdin.readline()\nprint('out of memory')\nsys.exit(1)"
    with ScriptArm(script, tmp_path) as arm, pytest.raises(UserError, match=r"exit status 1; .*\n.*log line\n.*memory"):
        arm.run(JOB)


def test_an_arm_that_was_killed_is_noticed_though_its_child_holds_the_pipe(tmp_path: Path) -> None:
    child = "if os.fork() == 0:\n    time.sleep(5)\n    os._exit(0)\n"
    script = READY + child + "sys.stdin.readline()\nos.kill(os.getpid(), 9)"
    with ScriptArm(script, tmp_path) as arm, pytest.raises(UserError, match="exit status -9"):
        arm.run(JOB)


def test_what_an_interrupted_question_was_answered_is_not_taken_for_the_next_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = READY + "for line in sys.stdin:\n    print(len(json.loads(line)['gap']['prompt']), file=out, flush=True)\n"
    wait = select.select

    def interrupted(*files: object) -> None:
        monkeypatch.setattr(select, "select", wait)
        raise KeyboardInterrupt

    with ScriptArm(script, tmp_path) as arm:
        monkeypatch.setattr(select, "select", interrupted)
        with pytest.raises(KeyboardInterrupt):
            arm.gap("four", [], [1, 2])
        assert arm.gap("seventy", [], [1, 2]) == 7.0
        assert arm.gap("one", [], [1, 2]) == 3.0


def test_a_dead_arm_cannot_be_asked(tmp_path: Path) -> None:
    with ScriptArm(READY + "sys.exit(0)", tmp_path) as arm:
        while is_running(arm.facts["pid"]):
            time.sleep(0.02)
        with pytest.raises(UserError, match="exit status 0"):
            arm.run(JOB)
