"""Configures an EAGLE-3 head next to the target, and runs its passes."""

import copy
import gc
from typing import TYPE_CHECKING, Any

import torch

from vllm_spec_plugin.v1.compat.draft_model import draft_vllm_config
from vllm_spec_plugin.v1.compat.draft_pass import DraftPass
from vllm_spec_plugin.v1.compat.head_attention import attention_of

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import Attention, ModelConfig, VllmConfig
    from vllm_spec_plugin.v1.compat.cpu_head_pass import CPUHeadPass


def head_vllm_config(vllm_config: "VllmConfig", head: "ModelConfig") -> "VllmConfig":
    """Creates a `VllmConfig` with the target's model and a head in its speculative configuration.

    Args:
        vllm_config: the target's.
        head: the result of `draft_model_config`.
    """
    speculative = copy.copy(vllm_config.speculative_config)
    assert speculative is not None
    speculative.draft_model_config = head
    return draft_vllm_config(vllm_config, head, speculative_config=speculative)


def share_embedding(head: Any, target: Any) -> None:
    """Makes a head without an embedding use the target's.

    Raises:
        ValueError: the target's embedding is not where vLLM's own `eagle3` looks for it.
    """
    inner = target.get_language_model() if hasattr(target, "get_language_model") else target
    embedding = getattr(getattr(inner, "model", None), "embed_tokens", None)
    if embedding is None:
        raise ValueError(
            f"proposer.model: the head has no embedding of its own, and {type(target).__name__} keeps its embedding "
            "elsewhere than other models; allowed: a head with 'embed_tokens.weight'"
        )
    # Where vLLM serves adapters it has wrapped the embedding, for the tokens of the target's own steps only.
    head.model.embed_tokens = getattr(embedding, "base_layer", embedding)
    # Frees the head's now: where that happens while a model is compiled, vLLM's handler of it raises.
    gc.collect()


class HeadPass(DraftPass):
    """Runs a head: hidden states go in beside tokens, and come out beside logits."""

    def warm_up(self, num_tokens: int, num_rows: int) -> None:
        """See `DraftPass`."""
        device, model = self._vllm_config.device_config.device, self._model
        token_ids = torch.zeros(num_tokens, dtype=torch.int32, device=device)
        states = model.model.fc.weight.new_zeros(num_tokens, model.model.fc_input_size)
        with self._context(None, {}, num_tokens):
            output, _ = model(token_ids, token_ids.long(), model.combine_hidden_states(states))
            model.compute_logits(output[:num_rows])

    def run_head(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        rows: torch.Tensor,
        states: torch.Tensor,
        *,
        is_first: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Computes the prepared pass.

        Args:
            token_ids: [num_tokens] int32, of the positions after `positions`.
            positions: [num_tokens] int64.
            rows: [n] int64, indices of the tokens whose results are returned.
            states: [num_tokens, any], hidden states at `positions`.
            is_first: whether these are the target's; else this head's.

        Returns:
            [n, vocab_size] logits, -inf outside the head's vocabulary; and [n, hidden_size], the head's hidden states.
        """
        model = self._model
        with self._context(self._metadata, self._slots, len(token_ids)):
            if is_first:
                states = model.combine_hidden_states(states)
            output, following = model(token_ids, positions, states)
            logits: torch.Tensor = model.compute_logits(output[rows])
        return logits, following[rows]

    def write_text(self, token_ids: torch.Tensor, positions: torch.Tensor, states: torch.Tensor) -> None:
        """Writes keys and values only, of a head of one layer: less than half of the work of a pass.

        Args:
            token_ids: [num_tokens] int32, of the positions after `positions`.
            positions: [num_tokens] int64.
            states: [num_tokens, any], the target's hidden states at `positions`.
        """
        with self._context(self._metadata, self._slots, len(token_ids)):
            attention_of(self._model, token_ids, positions, states)


def head_pass(vllm_config: "VllmConfig", model: Any, layers: dict[str, "Attention"]) -> "HeadPass | CPUHeadPass":
    """Creates the fastest pass that suits a head of `load_draft_model`, with the methods of `HeadPass`."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        from vllm_spec_plugin.v1.compat.cpu_head_pass import CPUHeadPass

        if CPUHeadPass.suits(vllm_config, model, layers):
            return CPUHeadPass(vllm_config, model, layers)
    return HeadPass(vllm_config, model, layers)
