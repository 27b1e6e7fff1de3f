"""The part of a worker that measures, for vLLM's CPU and CUDA workers alike."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.cuda import Worker
else:
    Worker = object


class SpecWorkerMixin(Worker):
    """Put before a vLLM worker whose runner is the plugin's."""

    def compile_or_warm_up_model(self) -> Any:
        """Warms up, then measures what steps take."""
        times = super().compile_or_warm_up_model()
        self.model_runner.make_kernels()
        self.model_runner.probe_steps()
        return times
