"""The target as vLLM serves it, which writes the texts of self-distillation."""

import tempfile
from pathlib import Path
from typing import Any, Self

from vllm_spec_tools.bench.engine_args import ArmPlan, arm_environment, engine_arguments
from vllm_spec_tools.engines.jobs import CertifyRequest, EngineProcess, Job
from vllm_spec_tools.engines.memory import beside_others

# The backbone is on the same device.
_KV_BYTES = 2 << 30


class TargetEngine:
    """An engine without speculation; it starts with its first batch, and ends with the context."""

    def __init__(self, model: str, max_length: int) -> None:
        """Takes the model, a folder or a hub name, and the maximum tokens of a prompt with its continuation."""
        self._model, self._options = model, {"max_model_len": max_length} | beside_others(_KV_BYTES)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._engine: EngineProcess | None = None

    def write(self, prompts: list[list[int]], max_tokens: int, temperature: float, seed: int) -> list[list[int]]:
        """Continues prompts; returns the new token ids of each, the end token included.

        Args:
            temperature: 0 is greedy.

        Raises:
            EngineError: the engine did not start, or ended.
        """
        if self._engine is None:
            self._engine = self._start()
        params: dict[str, Any] = {"temperature": temperature, "max_tokens": max_tokens, "detokenize": False}
        job = Job([CertifyRequest(tuple(prompt), params) for prompt in prompts], torch_seed=seed)
        return self._engine.run(job).tokens()

    def _start(self) -> EngineProcess:
        self._folder = tempfile.TemporaryDirectory(prefix="vllm-spec-train-")
        arguments = engine_arguments(ArmPlan(None), self._model, 0, True, options=self._options)
        environment = arm_environment(self._model, self._options)
        engine = EngineProcess(arguments, Path(self._folder.name) / "engine", environment, name="the target's engine")
        engine.wait()
        return engine

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._engine is not None and self._folder is not None:
            self._engine.stop()
            self._folder.cleanup()
