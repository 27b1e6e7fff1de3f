"""The CUDA worker."""

from typing import Any

from vllm_spec_plugin.compat.cuda import GPUModelRunner, Worker
from vllm_spec_plugin.compat.v2 import verify_scheduled_drafts
from vllm_spec_plugin.config.settings import config_in
from vllm_spec_plugin.forward.reload import ReloadsDrafter
from vllm_spec_plugin.forward.runner import SpecRunnerMixin
from vllm_spec_plugin.forward.start_up import SpecWorkerMixin


class SpecGPUModelRunner(SpecRunnerMixin, GPUModelRunner):
    """vLLM's V1 CUDA runner with the plugin's speculation."""


class SpecCUDAWorker(SpecWorkerMixin, ReloadsDrafter, Worker):
    """vLLM's CUDA worker, running `SpecGPUModelRunner`; vLLM picks its V1 runner for custom proposers."""

    def _make_model_runner(self) -> Any:
        return SpecGPUModelRunner(self.vllm_config, self.device)


class NativeCUDAWorker(ReloadsDrafter, Worker):
    """vLLM's CUDA worker, with its own drafters."""


class TextCUDAWorker(NativeCUDAWorker):
    """vLLM's CUDA worker, whose runner verifies the drafts that the scheduler sends; V1 does so by itself."""

    def _make_model_runner(self) -> Any:
        runner = super()._make_model_runner()
        if self.use_v2_model_runner:
            config = config_in(self.vllm_config.additional_config)
            verify_scheduled_drafts(runner, keeps_drafter=config.is_native)
        return runner
