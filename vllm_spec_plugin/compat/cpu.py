"""Base classes from vLLM: its CPU worker and runner."""

from contextlib import AbstractContextManager

from vllm.v1.worker import cpu_worker
from vllm.v1.worker.cpu_model_runner import CPUModelRunner
from vllm.v1.worker.cpu_worker import CPUWorker

from vllm_spec_plugin.compat.patching import replaced

__all__ = ["CPUModelRunner", "CPUWorker", "cpu_runner_in_place"]


def cpu_runner_in_place(runner_cls: type) -> AbstractContextManager[None]:
    """Makes vLLM's CPU worker build `runner_cls` within the context; the worker has no hook for its runner."""
    return replaced(cpu_worker, "CPUModelRunner", runner_cls)
