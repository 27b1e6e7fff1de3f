"""The CUDA worker."""

from typing import Any

from vllm_spec_plugin.compat.cuda import GPUModelRunner, Worker
from vllm_spec_plugin.worker.runner import SpecRunnerMixin


class SpecGPUModelRunner(SpecRunnerMixin, GPUModelRunner):
    """vLLM's V1 CUDA runner with the plugin's speculation."""


class SpecCUDAWorker(Worker):
    """vLLM's CUDA worker, running `SpecGPUModelRunner`; vLLM picks its V1 runner for custom proposers."""

    def _make_model_runner(self) -> Any:
        return SpecGPUModelRunner(self.vllm_config, self.device)

    def compile_or_warm_up_model(self) -> Any:
        """Warms up, then measures."""
        times = super().compile_or_warm_up_model()
        self.model_runner.probe_steps()
        return times
