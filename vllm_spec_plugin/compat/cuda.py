"""vLLM's CUDA worker and its V1 runner, the one that takes custom proposers: the classes to build on."""

from vllm.v1.worker.gpu_model_runner import GPUModelRunner
from vllm.v1.worker.gpu_worker import Worker

__all__ = ["GPUModelRunner", "Worker"]
