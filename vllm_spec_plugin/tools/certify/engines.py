"""Starts engines in processes of their own, gives them jobs, and stops them."""

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_plugin.tools.certify.jobs import Job, Result

_POLL_SECONDS = 0.05
_TAIL_CHARACTERS = 6000


class EngineError(UserError, RuntimeError):
    """An engine ended before its time; the message has the end of its log."""


class StartError(EngineError):
    """An engine refused to start; the message is its own."""


class RunsJobs(Protocol):
    """An engine, wherever it is."""

    def facts(self) -> dict[str, Any]:
        """Tells its device, dtype, sizes and tokenizer, see `engine_process.py`."""
        ...

    def run(self, job: Job) -> Result:
        """Runs a job to its end."""
        ...


class EngineProcess:
    """An engine in a process of its own, which is ended with the context or by `stop`."""

    def __init__(
        self,
        arguments: Mapping[str, Any],
        folder: Path,
        environment: Mapping[str, str],
        timeout: float = 3600.0,
        python: Sequence[str] = (sys.executable,),
    ) -> None:
        """Starts the process; the engine is ready some time later.

        Args:
            arguments: see `engine_process.py`.
            folder: for its files; made.
            environment: of the process, whole.
            timeout: seconds that a job may take, the engine's start included.
            python: the interpreter's command.
        """
        folder.mkdir(parents=True)
        (folder / "engine.pickle").write_bytes(pickle.dumps(dict(arguments)))
        self._folder, self._timeout, self._num_jobs = folder, timeout, 0
        with (folder / "log").open("wb") as log:
            # In a session of its own: Ctrl-C reaches us alone, and its children can be ended with it.
            self._process = subprocess.Popen(
                [*python, "-m", "vllm_spec_plugin.tools.certify.engine_process", str(folder / "engine.pickle")],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                text=True,
            )

    def facts(self) -> dict[str, Any]:
        """Waits for the engine to be ready, and tells its device, dtype, sizes and tokenizer.

        Raises:
            StartError: it did not start; the message is its own.
            EngineError: its process ended without a message, or took too long.
        """
        path = self._folder / "engine.pickle.facts"
        self._wait_for(path)
        facts: dict[str, Any] | str = pickle.loads(path.read_bytes())
        if isinstance(facts, str):
            self.stop()
            raise StartError(facts)
        return facts

    def run(self, job: Job) -> Result:
        """Runs `job`.

        Raises:
            EngineError: the engine ended, or took too long.
        """
        self._num_jobs += 1
        job_path, result_path = (self._folder / f"{kind}{self._num_jobs}.pickle" for kind in ("job", "result"))
        job_path.write_bytes(pickle.dumps(job))
        assert self._process.stdin is not None
        try:
            print(job_path, result_path, sep="\t", file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise self._death() from None
        self._wait_for(result_path)
        result: Result = pickle.loads(result_path.read_bytes())
        for path in (job_path, result_path):
            path.unlink()
        return result

    @property
    def log(self) -> str:
        """What the process and those it started have printed so far."""
        return (self._folder / "log").read_text(errors="replace")

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Ends the process and those it started."""
        # An engine takes seconds to end by itself, and has nothing to save.
        if self.alive:
            os.killpg(self._process.pid, signal.SIGKILL)
        # Closes its standard input too.
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _wait_for(self, path: Path) -> None:
        deadline = time.monotonic() + self._timeout
        while not path.exists():
            if not self.alive or time.monotonic() > deadline:
                if path.exists():
                    return
                raise self._death()
            time.sleep(_POLL_SECONDS)

    def _death(self) -> EngineError:
        self.stop()
        status = self._process.returncode
        return EngineError(
            f"the engine ended with exit status {status}; the end of its log:\n{self.log[-_TAIL_CHARACTERS:]}"
        )
