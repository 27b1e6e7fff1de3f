"""The CPU worker of own proposers."""

from typing import Any

from vllm_spec_plugin.compat.cpu import CPUModelRunner, CPUWorker, cpu_runner_in_place
from vllm_spec_plugin.v1.runner import SpecRunnerMixin
from vllm_spec_plugin.v1.start_up import SpecWorkerMixin
from vllm_spec_plugin.worker.reload import ReloadsDrafter


class SpecCPUModelRunner(SpecRunnerMixin, CPUModelRunner):
    """vLLM's CPU runner with the plugin's speculation."""


class SpecCPUWorker(SpecWorkerMixin, ReloadsDrafter, CPUWorker):
    """vLLM's CPU worker, running `SpecCPUModelRunner`."""

    def init_device(self) -> Any:
        """Builds the runner."""
        with cpu_runner_in_place(SpecCPUModelRunner):
            return super().init_device()
