"""Starting arms, asking them, and ending them."""

import contextlib
import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import TypeAdapter

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_plugin.tools.bench.host.records import HostAnswer, HostJob
from vllm_spec_plugin.tools.bench.load.records import LoadAnswer, LoadJob
from vllm_spec_plugin.tools.bench.records import Answer, Job

_TAIL_LINES = 30
_POLL_SECONDS = 0.2


class Arm:
    """An engine in a process of its own, as a context manager: ready when entered, gone when left.

    Attributes:
        name: as it is called in the report.
        facts: what the engine chose by itself; there once entered.
    """

    facts: dict[str, Any]

    def __init__(self, name: str, arguments: Mapping[str, Any], environment: Mapping[str, str], folder: Path) -> None:
        """Prepares an arm; nothing is started before the context is entered.

        Args:
            name: as it is called in the report.
            arguments: see `arm.py`.
            environment: of the process, whole.
            folder: for its files; made.
        """
        self.name = name
        self._arguments, self._environment, self._folder = dict(arguments), dict(environment), folder
        self._process: subprocess.Popen[str] | None = None
        self._answers = -1
        self._received = b""
        # Whether an answer is still to come: an interrupt leaves one behind.
        self._is_owed = False

    def command(self, file_descriptor: int) -> list[str]:
        """The command line of the process, which answers on that file descriptor."""
        return [
            sys.executable,
            "-m",
            "vllm_spec_plugin.tools.bench.arm_process",
            str(self._folder / "engine"),
            str(file_descriptor),
        ]

    def run(self, job: Job) -> Answer:
        """Runs a job.

        Raises:
            UserError: the arm ended.
        """
        return TypeAdapter(Answer).validate_python(self._ask({"run": dataclasses.asdict(job)}))

    def load(self, job: LoadJob) -> LoadAnswer:
        """Runs a job of concurrent streams.

        Raises:
            UserError: the arm ended.
        """
        return TypeAdapter(LoadAnswer).validate_python(self._ask({"load": dataclasses.asdict(job)}))

    def host(self, job: HostJob) -> HostAnswer:
        """Measures decoding steps by part.

        Raises:
            UserError: the arm ended.
        """
        return HostAnswer(**self._ask({"host": dataclasses.asdict(job)}))

    def answers(self, prompts: Mapping[str, int]) -> list[str]:
        """Answers prompts greedily in one batch; takes the number of output tokens of each.

        Raises:
            UserError: the arm ended.
        """
        return list(self._ask({"answers": prompts}))

    def gap(self, prompt: str, token_ids: Sequence[int], candidates: Sequence[int]) -> float:
        """How far apart two tokens' log-probabilities are after a prompt and a beginning of its output.

        Raises:
            UserError: the arm ended.
        """
        return float(self._ask({"gap": {"prompt": prompt, "token_ids": token_ids, "candidates": candidates}}))

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        (self._folder / "engine").write_text(json.dumps(self._arguments))
        self._answers, theirs = os.pipe()
        try:
            with (self._folder / "log").open("wb") as log, os.fdopen(theirs, "w"):
                # In a session of its own: Ctrl-C reaches us alone, and its whole family can be ended at once.
                self._process = subprocess.Popen(
                    self.command(theirs),
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(theirs,),
                    env=self._environment,
                    start_new_session=True,
                    text=True,
                )
            self.facts = self._answer()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the process and those it started; does nothing if it is not running."""
        process, self._process = self._process, None
        if process is None:
            return
        # An engine takes seconds to end by itself, and has nothing to save.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(self._answers)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()

    def _ask(self, command: dict[str, Any]) -> Any:
        assert self._process is not None
        assert self._process.stdin is not None
        if self._is_owed:
            self._answer()
        self._is_owed = True
        try:
            print(json.dumps(command), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise self._death() from None
        return self._answer()

    def _answer(self) -> Any:
        assert self._process is not None
        while b"\n" not in self._received:
            if select.select([self._answers], [], [], _POLL_SECONDS)[0]:
                piece = os.read(self._answers, 1 << 16)
                if not piece:
                    raise self._death()
                self._received += piece
            # A process that it left behind may hold the other end open.
            elif self._process.poll() is not None:
                raise self._death()
        line, _, self._received = self._received.partition(b"\n")
        self._is_owed = False
        return json.loads(line)

    def _death(self) -> UserError:
        assert self._process is not None
        try:
            status = f"with exit status {self._process.wait(timeout=10)}"
        except subprocess.TimeoutExpired:
            status = "without ending its process"
        lines = (self._folder / "log").read_text(errors="replace").splitlines()
        text = "\n".join(f"  | {line}" for line in lines[-_TAIL_LINES:]) or "  (it wrote nothing)"
        return UserError(f"arm {self.name} ended {status}; the end of its log:\n{text}")
