"""Engines as processes, with small scripts in their place; real ones are in tests/engine."""

import os
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from tests.unit.processes import is_running
from vllm_spec_tools.engines import engine_child
from vllm_spec_tools.engines.engine_child import EngineChild, EngineError, StartError

START = """import os, sys, time
from vllm_spec_tools.engines.engine_child import answer_questions
print('a log line', flush=True)
"""
READY = "def build(arguments):\n    return {'pid': os.getpid(), **arguments}, answer\nanswer_questions(build)\n"
ECHO = START + "def answer(question):\n    return question\n" + READY


def child(script: str, folder: Path, timeout: float = 60.0) -> EngineChild:
    class Scripted(EngineChild):
        program = ("-c", script)

    return Scripted({"model": "some"}, folder / "engine", os.environ, timeout, name="arm scripted")


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_answers_of_any_length_come_back(tmp_path: Path) -> None:
    with child(ECHO, tmp_path) as engine:
        assert engine.facts()["model"] == "some"
        for question in ([list(range(100_000))], {"a": (1.5, "b")}):
            assert engine.ask(question) == question
        assert engine.log == "a log line\n"


def test_leaving_ends_the_process_and_closes_its_files(tmp_path: Path) -> None:
    before = open_files()
    with child(ECHO, tmp_path) as engine:
        pid = engine.facts()["pid"]
        assert engine.alive
    assert not is_running(pid)
    assert open_files() == before
    engine.stop()


def test_leaving_ends_what_the_process_started(tmp_path: Path) -> None:
    script = START + (
        "import subprocess\n"
        "def build(arguments):\n"
        "    p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "    return {'pid': p.pid}, print\n"
        "answer_questions(build)\n"
    )
    with child(script, tmp_path) as engine:
        pid = engine.facts()["pid"]
        assert is_running(pid)
    deadline = time.monotonic() + 5
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_running(pid)


def test_an_engine_that_refuses_says_why_and_one_that_dies_shows_the_end_of_its_log(tmp_path: Path) -> None:
    refusing = START + "def build(arguments):\n    raise ValueError('no weights')\nanswer_questions(build)\n"
    with child(refusing, tmp_path / "a") as engine, pytest.raises(StartError, match=r"^no weights$"):
        engine.facts()
    words = r"(?s)^arm scripted did not start: no weights; the end of its log:\n.*Traceback"
    with child(refusing, tmp_path / "again") as engine, pytest.raises(EngineError, match=words):
        engine.wait()
    mistaken = START + (
        "from vllm_spec_plugin.schema.errors import ConfigError\n"
        "def build(arguments):\n    raise ConfigError('no such runner')\nanswer_questions(build)\n"
    )
    with child(mistaken, tmp_path / "c") as engine:
        with pytest.raises(EngineError, match=r"^arm scripted did not start: no such runner$"):
            engine.wait()
        assert "Traceback" not in engine.log
    dying = START + "print('no memory', file=sys.stderr)\nsys.exit(3)"
    words = r"arm scripted ended with exit status 3; .*\n  \| a log line\n  \| no memory"
    with child(dying, tmp_path / "b") as engine, pytest.raises(EngineError, match=words):
        engine.facts()


def test_an_engine_that_dies_at_work_is_noticed_though_its_child_holds_the_socket(tmp_path: Path) -> None:
    script = START + (
        "def answer(question):\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(5)\n"
        "        os._exit(0)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    with child(script + READY, tmp_path) as engine:
        with pytest.raises(EngineError, match="exit status -9"):
            engine.ask("work")
        with pytest.raises(EngineError):
            engine.ask("more")


def test_an_engine_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_child, "_ENDING_SECONDS", 0.1)
    script = START + "def answer(question):\n    time.sleep(600)\n" + READY
    with child(script, tmp_path) as engine:
        pid = engine.facts()["pid"]
        engine._timeout = 0.1
        with pytest.raises(EngineError, match="did not answer"):
            engine.ask("work")
        assert not is_running(pid)


def test_what_an_interrupted_question_was_answered_is_not_taken_for_the_next_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll = Connection.poll

    def interrupted(*arguments: Any) -> bool:
        monkeypatch.setattr(Connection, "poll", poll)
        raise KeyboardInterrupt

    with child(ECHO, tmp_path) as engine:
        engine.facts()
        monkeypatch.setattr(Connection, "poll", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.ask("four")
        assert engine.ask("seventy") == "seventy"
