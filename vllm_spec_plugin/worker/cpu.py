"""CPU workers of vLLM's drafters, and of drafts that the scheduler sends."""

from typing import Any

from vllm_spec_plugin.compat.cpu import CPUWorker
from vllm_spec_plugin.worker.drafter_time import TimesDrafter
from vllm_spec_plugin.worker.on_v2 import draft_on_v2
from vllm_spec_plugin.worker.reload import ReloadsDrafter
from vllm_spec_plugin.worker.resting import RestsDrafter
from vllm_spec_plugin.worker.verification import VerifiesOnV2


class NativeCPUWorker(TimesDrafter, RestsDrafter, VerifiesOnV2, ReloadsDrafter, CPUWorker):
    """vLLM's CPU worker, with its own drafters."""


class OwnCPUWorker(NativeCPUWorker):
    """vLLM's CPU worker, whose runner verifies drafts that the scheduler sends, which V1 does by itself, or heads'."""

    def init_device(self) -> Any:
        """Builds the runner."""
        built = super().init_device()
        if self.use_v2_model_runner:
            runner: Any = self.model_runner
            draft_on_v2(runner, self.vllm_config)
        return built
