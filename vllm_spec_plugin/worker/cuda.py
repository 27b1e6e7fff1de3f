"""CUDA workers of vLLM's drafters, and of drafts that the scheduler sends."""

from typing import Any

from vllm_spec_plugin.compat.cuda import Worker
from vllm_spec_plugin.worker.drafter_time import TimesDrafter
from vllm_spec_plugin.worker.on_v2 import draft_on_v2
from vllm_spec_plugin.worker.reload import ReloadsDrafter
from vllm_spec_plugin.worker.resting import RestsDrafter
from vllm_spec_plugin.worker.verification import VerifiesOnV2


class NativeCUDAWorker(TimesDrafter, RestsDrafter, VerifiesOnV2, ReloadsDrafter, Worker):
    """vLLM's CUDA worker, with its own drafters."""


class OwnCUDAWorker(NativeCUDAWorker):
    """vLLM's CUDA worker, whose runner verifies drafts that the scheduler sends, which V1 does by itself, or heads'."""

    def _make_model_runner(self) -> Any:
        runner: Any = super()._make_model_runner()
        if self.use_v2_model_runner:
            draft_on_v2(runner, self.vllm_config)
        return runner
