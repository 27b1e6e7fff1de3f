"""Base classes from vLLM: its CPU worker and runner."""

import contextlib
from collections.abc import Iterator

from vllm.v1.worker import cpu_worker
from vllm.v1.worker.cpu_model_runner import CPUModelRunner
from vllm.v1.worker.cpu_worker import CPUWorker

__all__ = ["CPUModelRunner", "CPUWorker", "cpu_runner_in_place"]


@contextlib.contextmanager
def cpu_runner_in_place(runner_cls: type) -> Iterator[None]:
    """Makes vLLM's CPU worker build `runner_cls` within the context; the worker has no hook for its runner."""
    stock = cpu_worker.CPUModelRunner
    cpu_worker.CPUModelRunner = runner_cls
    try:
        yield
    finally:
        cpu_worker.CPUModelRunner = stock
