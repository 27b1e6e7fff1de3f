"""Engines that run a certification's jobs."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from vllm_spec_tools.certify.jobs import Job, Result
from vllm_spec_tools.engine_child import EngineChild


class RunsJobs(Protocol):
    """An engine, wherever it is."""

    def facts(self) -> dict[str, Any]:
        """Returns its device, dtype, sizes and tokenizer, see `engine_process.py`."""
        ...

    def run(self, job: Job) -> Result:
        """Runs a job to its end."""
        ...


class EngineProcess(EngineChild):
    """An engine in a process of its own."""

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
        """
        command = [*python, "-m", "vllm_spec_tools.certify.engine_process"]
        super().__init__("the engine", command, arguments, folder, environment, timeout)

    def run(self, job: Job) -> Result:
        """Runs `job`.

        Raises:
            EngineError: the engine ended, or took too long.
        """
        result: Result = self.ask(job)
        return result
