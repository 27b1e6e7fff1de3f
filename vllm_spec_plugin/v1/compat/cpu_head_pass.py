"""Compiles an EAGLE-3 head's pass for vLLM's CPU backend, from tokens and hidden states to logits."""

from typing import TYPE_CHECKING, Any

import torch

from vllm_spec_plugin.v1.compat.cpu_pass import CPUPass, Forward, example
from vllm_spec_plugin.v1.compat.head_attention import attention_of

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import Attention, VllmConfig

# Some result that the graph must compute.
_ONE_ROW = torch.zeros(1, dtype=torch.int64)


class CPUHeadPass(CPUPass):
    """Runs a head as compiled graphs: from the target's hidden states, from its own, and up to its attention."""

    def __init__(self, vllm_config: "VllmConfig", model: Any, layers: dict[str, "Attention"]) -> None:
        """See `CPUPass`."""
        super().__init__(vllm_config, model, layers)
        self._run_first: Forward = self._first
        self._run_later: Forward = self._later
        self._run_text: Forward = self._text

    def warm_up(self, num_tokens: int, num_rows: int) -> None:
        """See `DraftPass`."""
        if self._vllm_config.compilation_config.mode and not self._is_warm:
            self._run_first = self.compiled(self._first, self._first_example)
            if self.execution_mode == "compiled":
                self._run_later = self.compiled(self._later, self._later_example)
            if self.execution_mode == "compiled" and len(self.layers) == 1:
                self._run_text = self.compiled(self._text, self._first_example)
        self._is_warm = True
        self._run_first(*self._first_example(num_tokens, num_rows))

    def run_head(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        rows: torch.Tensor,
        states: torch.Tensor,
        *,
        is_first: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `HeadPass`."""
        run = self._run_first if is_first else self._run_later
        logits, following = run(token_ids, positions, rows, states)
        return logits, following

    def write_text(self, token_ids: torch.Tensor, positions: torch.Tensor, states: torch.Tensor) -> None:
        """See `HeadPass`."""
        self.skip_attention()
        self._run_text(token_ids, positions, _ONE_ROW, states)

    def _text(
        self, token_ids: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor, states: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return (attention_of(self._model, token_ids, positions, states)[rows],)

    def _first(
        self, token_ids: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor, states: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return self._later(token_ids, positions, rows, self._model.combine_hidden_states(states))

    def _later(
        self, token_ids: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor, states: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        output, following = self._model(token_ids, positions, states)
        return self._model.compute_logits(output[rows]), following[rows]

    def _first_example(self, num_tokens: int, num_rows: int) -> tuple[torch.Tensor, ...]:
        return *example(num_tokens, num_rows), self._states(num_tokens, self._model.model.fc_input_size)

    def _later_example(self, num_tokens: int, num_rows: int) -> tuple[torch.Tensor, ...]:
        return *example(num_tokens, num_rows), self._states(num_tokens, self._model.config.hidden_size)

    def _states(self, num_tokens: int, size: int) -> torch.Tensor:
        # Different ones, about as large as those after a norm.
        states: torch.Tensor = torch.arange(num_tokens * size).view(num_tokens, size).sin()
        return states.to(self._model.model.fc.weight.dtype)
