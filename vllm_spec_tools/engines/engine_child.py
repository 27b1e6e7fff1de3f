"""An engine in a process of its own, which answers one question after the other.

vLLM can't build two engines in one process. The child's standard input is a socket; questions and answers are pickled.
"""

import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Self

from vllm_spec_plugin.register.switch import reason_off
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.engines.processes import LoggedProcess, quoted_lines

_TAIL_LINES = 60
_POLL_SECONDS = 0.2
# For a process whose connection is closed to end.
_ENDING_SECONDS = 10.0


class EngineError(UserError, RuntimeError):
    """An engine ended before its time; the message has the end of its log."""


class StartError(EngineError):
    """An engine refused to start; the message is its own."""


class EngineRefusal(StartError):
    """The same, for a reason that the message says in whole: no log is needed beside it."""


class EngineChild:
    """A process that runs `answer_questions`; it is ended with the context or by `stop`."""

    program: Sequence[str] = ("-m", "vllm_spec_tools.engines.engine_process")

    def __init__(
        self,
        arguments: Mapping[str, Any],
        folder: Path,
        environment: Mapping[str, str],
        timeout: float = 3600.0,
        python: Sequence[str] = (sys.executable,),
        name: str = "the engine",
    ) -> None:
        """Starts the process; the engine is ready some time later.

        Args:
            arguments: see `engine_process.py`.
            folder: new one, for the log.
            timeout: seconds that an answer may take, the engine's start included.

        Raises:
            StartError: the environment keeps the plugin out.
        """
        if reason := reason_off(environment):
            raise StartError(f"{reason}: this command runs engines with the plugin; unset it")
        folder.mkdir(parents=True)
        self.name, self._timeout = name, timeout
        # Answers still to come: an interrupt leaves one behind.
        self._num_owed = 0
        self._facts: dict[str, Any] | None = None
        self._connection, theirs = Pipe()
        with theirs:
            command = [*python, *self.program]
            self._process = LoggedProcess(command, environment, folder / "log", stdin=theirs.fileno())
        self._send(dict(arguments))

    def facts(self) -> dict[str, Any]:
        """Waits for the engine to be ready, and returns what it chose by itself.

        Raises:
            StartError: it did not start; the message is its own.
            EngineError: its process ended without a message, or took too long.
        """
        if self._facts is None:
            found = self._receive()
            if isinstance(found, StartError):
                self.stop()
                raise found
            self._facts = found
        return self._facts

    def wait(self) -> None:
        """Waits for the engine to be ready.

        Raises:
            EngineError: it did not start; the message has the reason, or the end of its log.
        """
        try:
            self.facts()
        except StartError as error:
            log = "" if isinstance(error, EngineRefusal) else f"; {self._last_words()}"
            raise EngineError(f"{self.name} did not start: {error}{log}") from None

    def ask(self, question: Any) -> Any:
        """Returns the engine's answer.

        Raises:
            EngineError: it ended, or took too long.
        """
        self.facts()
        while self._num_owed:
            self._receive()
        self._send(question)
        return self._receive()

    @property
    def log(self) -> str:
        """Reads the output of the process and of those it started, so far."""
        return self._process.log

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Ends the process and those it started."""
        if not self._connection.closed:
            # An engine takes seconds to end by itself, and has nothing to save.
            self._process.end()
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _send(self, value: Any) -> None:
        try:
            self._connection.send(value)
        except OSError:
            raise self._death() from None
        self._num_owed += 1

    def _receive(self) -> Any:
        deadline = time.monotonic() + self._timeout
        try:
            while not self._connection.poll(_POLL_SECONDS):
                # A process that it left behind may hold the other end open.
                if not self.alive or time.monotonic() > deadline:
                    if self._connection.poll():
                        break
                    raise self._death()
            found = self._connection.recv()
        except (EOFError, OSError):
            raise self._death() from None
        self._num_owed -= 1
        return found

    def _death(self) -> EngineError:
        try:
            ending = f"ended with exit status {self._process.wait(_ENDING_SECONDS)}"
        except subprocess.TimeoutExpired:
            ending = "did not answer"
        self.stop()
        return EngineError(f"{self.name} {ending}; {self._last_words()}")

    def _last_words(self) -> str:
        return f"the end of its log:\n{quoted_lines(self.log.splitlines()[-_TAIL_LINES:])}"


def answer_questions(build: Callable[[dict[str, Any]], tuple[dict[str, Any], Callable[[Any], Any]]]) -> None:
    """Runs in the child: builds the engine and answers until the parent ends."""
    connection = Connection(os.dup(0))
    # Processes that the engine starts do not get the socket.
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a device
        os.dup2(nothing.fileno(), 0)
    try:
        facts, answer = build(connection.recv())
    except UserError as error:
        connection.send(EngineRefusal(str(error)))
        sys.exit(1)
    except Exception as error:
        # Before the message, after which the parent ends this process.
        traceback.print_exc()
        sys.stderr.flush()
        connection.send(StartError(str(error) or repr(error)))
        sys.exit(1)
    connection.send(facts)
    while True:
        try:
            question = connection.recv()
        except EOFError:
            return
        connection.send(answer(question))
