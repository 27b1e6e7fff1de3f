"""Base classes from vLLM: its CUDA worker and its V1 runner, which supports custom proposers."""

from vllm.v1.worker.gpu_model_runner import GPUModelRunner
from vllm.v1.worker.gpu_worker import Worker

__all__ = ["GPUModelRunner", "Worker"]
