"""vLLM's CPU worker and runner: the classes to build on."""

import contextlib
from collections.abc import Iterator

from vllm.v1.worker import cpu_worker
from vllm.v1.worker.cpu_model_runner import CPUModelRunner
from vllm.v1.worker.cpu_worker import CPUWorker

__all__ = ["CPUModelRunner", "CPUWorker", "cpu_runner_in_place"]


@contextlib.contextmanager
def cpu_runner_in_place(runner_cls: type) -> Iterator[None]:
    """While it lasts, vLLM's CPU worker builds `runner_cls`: it names its runner's class in no hook."""
    stock = cpu_worker.CPUModelRunner
    cpu_worker.CPUModelRunner = runner_cls
    try:
        yield
    finally:
        cpu_worker.CPUModelRunner = stock
