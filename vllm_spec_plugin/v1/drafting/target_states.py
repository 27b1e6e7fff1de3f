"""Connects proposers that use the target's hidden states to the worker."""

from typing import TYPE_CHECKING

import torch

from vllm_spec_plugin.v1.verification.constraints import SpeculatedRows, constrain

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import GPUModelRunner, VllmConfig


class TargetStates:
    """Implements `StatesEngine` on vLLM's runner.

    Attributes:
        hidden_size: size of the target's hidden states.
        dtype: data type of the hidden states.
        device: device of the hidden states.
    """

    def __init__(self, vllm_config: "VllmConfig") -> None:
        """Reads the target's configuration."""
        self.hidden_size: int = vllm_config.model_config.get_hidden_size()
        dtype, device = vllm_config.model_config.dtype, vllm_config.device_config.device
        assert isinstance(dtype, torch.dtype)
        assert isinstance(device, torch.device)
        self.dtype, self.device = dtype, device

    def bind(self, runner: "GPUModelRunner") -> None:
        """Sets the runner whose batch gets drafts."""
        self._runner = runner

    def constrain(self, logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """See `StatesEngine`."""
        context = rows.new_empty(len(rows), 0)
        return constrain(SpeculatedRows(logits, rows, context), self._runner.input_batch.sampling_metadata)
