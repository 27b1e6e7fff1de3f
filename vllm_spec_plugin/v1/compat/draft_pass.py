"""Runs a pass of the draft model, from tokens to logits, in vLLM's way on any device."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from vllm_spec_plugin.v1.compat.draft_attention import DraftAttention, PassBatch

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import Attention, VllmConfig


class DraftPass:
    """Runs the draft model.

    Attributes:
        layers: the model's attention layers, by name.
        execution_mode: "vllm" for vLLM's own path; "compiled" for one graph; "uncompiled" for that graph's Python code.
    """

    layers: dict[str, "Attention"]
    execution_mode = "vllm"

    def __init__(self, vllm_config: "VllmConfig", model: Any, layers: dict[str, "Attention"]) -> None:
        """Takes a model that vLLM has loaded.

        Args:
            vllm_config: the draft's.
            model: a module with vLLM's `compute_logits`.
            layers: its attention layers, by name.
        """
        self.layers = layers
        self._vllm_config = vllm_config
        self._model = model
        self._metadata: dict[str, Any] = {}
        self._slots: dict[str, torch.Tensor] = {}

    def warm_up(self, num_tokens: int, num_rows: int) -> None:
        """Runs the model once without a KV cache: compiles it, and lets vLLM measure its memory.

        Args:
            num_tokens: maximum tokens of a pass.
            num_rows: maximum rows of logits of a pass.
        """
        device = self._vllm_config.device_config.device
        token_ids = torch.zeros(num_tokens, dtype=torch.int32, device=device)
        with self._context(None, {}, num_tokens):
            states = self._model(input_ids=token_ids, positions=token_ids.long(), inputs_embeds=None)
            self._model.compute_logits(states[:num_rows])

    def bind(self, attention: DraftAttention) -> None:
        """Sets the layers' KV cache, after vLLM has laid it out."""
        self._attention = attention

    def renew(self) -> None:
        """Uses the model's weights after they were reloaded."""

    def prepare(self, batch: PassBatch) -> None:
        """Sets the attention layers' metadata for the next pass."""
        from vllm.v1.attention.backend import CommonAttentionMetadata

        common = CommonAttentionMetadata(
            query_start_loc=batch.query_start,
            query_start_loc_cpu=batch.query_start_cpu,
            seq_lens=batch.lengths,
            num_reqs=len(batch.lengths),
            num_actual_tokens=batch.slots.shape[1],
            max_query_len=batch.longest_query,
            max_seq_len=batch.longest,
            block_table_tensor=batch.blocks[0],
            slot_mapping=batch.slots[0],
        )
        self._metadata, self._slots = {}, {}
        for group, table in zip(self._attention.groups, self._attention.tables, strict=True):
            common = dataclasses.replace(
                common, block_table_tensor=batch.blocks[table], slot_mapping=batch.slots[table]
            )
            metadata = group.build_metadata_for_drafting(common_attn_metadata=common, draft_index=batch.step)
            self._metadata.update(dict.fromkeys(group.layer_names, metadata))
            self._slots.update(dict.fromkeys(group.layer_names, batch.slots[table]))

    def run(self, token_ids: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Computes the prepared pass.

        Args:
            token_ids: [num_tokens] int32.
            positions: [num_tokens] int64.
            rows: [n] int64, indices of the tokens whose logits are returned.

        Returns:
            [n, vocab_size].
        """
        with self._context(self._metadata, self._slots, len(token_ids)):
            states = self._model(input_ids=token_ids, positions=positions, inputs_embeds=None)
            logits: torch.Tensor = self._model.compute_logits(states[rows])
        return logits

    @contextlib.contextmanager
    def _context(
        self, metadata: dict[str, Any] | None, slots: dict[str, torch.Tensor], num_tokens: int
    ) -> Iterator[None]:
        from vllm.forward_context import set_forward_context

        with set_forward_context(metadata, self._vllm_config, num_tokens=num_tokens, slot_mapping=slots):
            yield
