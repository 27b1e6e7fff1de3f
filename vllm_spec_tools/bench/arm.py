"""An arm: an engine in a process of its own, which runs a benchmark's jobs."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from vllm_spec_tools.bench.records import Answer, Job, LoadAnswer, LoadJob
from vllm_spec_tools.engine_child import EngineChild


class Arm(EngineChild):
    """An engine in a process of its own: ready when the context is entered, ended when it is left.

    Every method that calls the engine raises `EngineError` if the engine ended.
    """

    module = "vllm_spec_tools.bench.arm_process"

    def __init__(self, name: str, arguments: Mapping[str, Any], environment: Mapping[str, str], folder: Path) -> None:
        """Starts the process."""
        super().__init__(f"arm {name}", [sys.executable, "-m", self.module], arguments, folder, environment)

    def __enter__(self) -> Self:
        """Waits for the engine.

        Raises:
            EngineError: it did not start; the message has the reason, or the end of its log.
        """
        try:
            self.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def run(self, job: Job) -> Answer:
        """Completes the job's prompts in one batch."""
        answer: Answer = self.ask(("run", job))
        return answer

    def load(self, job: LoadJob) -> LoadAnswer:
        """Runs a job of concurrent streams."""
        answer: LoadAnswer = self.ask(("load", job))
        return answer

    def top_two(self, prompt: str, token_ids: Sequence[int]) -> dict[int, float]:
        """Log-probabilities of the two most likely tokens after a prompt and a beginning of its output, by token id."""
        found: dict[int, float] = self.ask(("top_two", prompt, list(token_ids)))
        return found
