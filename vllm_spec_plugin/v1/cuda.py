"""The CUDA worker of own proposers."""

from vllm_spec_plugin.compat.cuda import GPUModelRunner, Worker
from vllm_spec_plugin.v1.runner import SpecRunnerMixin
from vllm_spec_plugin.v1.start_up import SpecWorkerMixin
from vllm_spec_plugin.worker.reload import ReloadsDrafter


class SpecGPUModelRunner(SpecRunnerMixin, GPUModelRunner):
    """vLLM's V1 CUDA runner with the plugin's speculation."""


class SpecCUDAWorker(SpecWorkerMixin, ReloadsDrafter, Worker):
    """vLLM's CUDA worker, running `SpecGPUModelRunner`; vLLM picks its V1 runner for custom proposers."""

    def _make_model_runner(self) -> GPUModelRunner:
        return SpecGPUModelRunner(self.vllm_config, self.device)
