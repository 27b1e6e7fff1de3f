"""Runs the draft model in vLLM's worker, in the target's block pool."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from vllm_spec_plugin.compat.drafter_model import draft_model_config
from vllm_spec_plugin.compat.step_blocks import added_blocks
from vllm_spec_plugin.proposers.section import DraftWeights
from vllm_spec_plugin.v1.compat.draft_attention import DraftAttention, PassBatch
from vllm_spec_plugin.v1.compat.draft_model import (
    draft_pass,
    draft_vllm_config,
    load_draft_model,
)
from vllm_spec_plugin.v1.drafting.ranks import RankAgreement
from vllm_spec_plugin.v1.proposers.draft_model.catch_up import TextChunk
from vllm_spec_plugin.v1.proposers.draft_model.coverage import BlockTables, DraftCoverage
from vllm_spec_plugin.v1.verification.constraints import SpeculatedRows, constrain

if TYPE_CHECKING:
    from vllm_spec_plugin.compat.types import Attention, GPUModelRunner, SchedulerOutput, VllmConfig
    from vllm_spec_plugin.v1.compat.draft_pass import DraftPass


class VllmDraftEngine:
    """Implements `DraftEngine` with a model that vLLM loads, compiles and gives a KV cache.

    Attributes:
        coverage: positions that the draft model has computed; set by `bind`.
        model_config: vLLM's configuration of the model.
        model: the model; set by `load`.
        max_len: the draft model's context length, in tokens.
        ranks: agreement of the tensor-parallel ranks on passes; None on one rank.
        aux_layers: ids of the target's layers whose hidden states the model takes.
        weight_bytes: bytes of the model's weights that are not the target's.
    """

    coverage: DraftCoverage
    model: torch.nn.Module
    ranks: RankAgreement | None = None
    aux_layers: tuple[int, ...] = ()
    weight_bytes = 0
    # Positions by which a token's keys and values are before those of the target.
    _shift = 0

    def __init__(self, vllm_config: "VllmConfig", weights: DraftWeights) -> None:
        """Creates the draft model's configuration.

        Args:
            vllm_config: the target's `VllmConfig`.
            weights: the draft model.
        """
        self.model_config = draft_model_config(vllm_config.model_config, **weights._asdict())
        self._vllm_config = self._config_of_draft(vllm_config)
        self.max_len: int = self.model_config.max_model_len

    @property
    def execution_mode(self) -> str:
        """The way in which the model runs, see `DraftPass`."""
        return self._pass.execution_mode

    @property
    def layers(self) -> set[str]:
        """Names of the model's attention layers."""
        return set(self._pass.layers)

    def load(self, target: torch.nn.Module) -> None:
        """Loads the weights; call it before vLLM measures memory and lays out the KV cache.

        Args:
            target: the loaded target.
        """
        self.model, layers = load_draft_model(self._vllm_config, self.model_config)
        self._pass = self._pass_of(target, self.model, layers)
        shared = set(map(id, target.parameters()))
        self.weight_bytes = sum(weight.nbytes for weight in self.model.parameters() if id(weight) not in shared)

    def bind(self, runner: "GPUModelRunner") -> None:
        """Finds the draft model's layers in the KV cache; call it after vLLM has laid it out."""
        # Late: vLLM's worker looks at all loaded modules when it starts, and stumbles over numba's.
        from vllm_spec_plugin.v1.drafting.pass_inputs import pass_inputs

        self._runner = runner
        self._device = runner.device
        self._attention = DraftAttention.of(runner, self._vllm_config, self.layers)
        self._pass.bind(self._attention)
        self._sizes = self._attention.block_sizes
        self._tables = [runner.input_batch.block_table[group] for group in self._attention.kv_cache_groups]
        self.coverage = DraftCoverage(self._attention.num_blocks, self._sizes)
        num_starts = runner.max_num_reqs + 1
        self._starts = torch.arange(num_starts, dtype=torch.int32, device=self._device)
        self._starts_cpu = torch.arange(num_starts, dtype=torch.int32)
        self._rows = torch.arange(num_starts, device=self._device)
        self._pass_inputs = pass_inputs
        # Compiled here, not in the first request.
        nothing = np.zeros((1, 1), dtype=np.int32)
        pass_inputs([(0, 0, 1)], 1, 1, self._texts[:1], [nothing], [1], torch.device("cpu"))

    def warm_up(self, num_tokens: int) -> None:
        """Runs the model once without a KV cache: compiles it, and lets vLLM measure its memory."""
        num_requests = min(num_tokens, self._vllm_config.scheduler_config.max_num_seqs)
        with torch.inference_mode():
            self._pass.warm_up(num_tokens, num_requests)

    def renew(self) -> None:
        """Uses the model's weights after they were reloaded."""
        with torch.inference_mode():
            self._pass.renew()

    def note_blocks(self, runner: "GPUModelRunner", scheduler_output: "SchedulerOutput") -> None:
        """Records the blocks that a step gives to requests; call it before the runner updates its tables.

        Args:
            runner: the runner.
            scheduler_output: vLLM's plan of the step.
        """
        for request_id, num_computed, block_ids, begins in added_blocks(scheduler_output):
            if begins:
                self._fresh(request_id, num_computed, block_ids)
                continue
            held = runner.requests[request_id].block_ids
            for index, group in enumerate(self._attention.kv_cache_groups):
                if block_ids[group]:
                    self.coverage.allocated(request_id, len(held[group]), block_ids[group], index)

    def block_tables(self, row: int) -> BlockTables:
        """See `DraftEngine`."""
        return [table.block_table.np[row, : table.num_blocks_per_row[row]] for table in self._tables]

    def num_slots(self, row: int) -> int:
        """Returns the number of slots in the blocks of the request in batch row `row`."""
        return min(
            int(table.num_blocks_per_row[row]) * size for table, size in zip(self._tables, self._sizes, strict=True)
        )

    def start(self, chunks: Sequence[TextChunk], num_steps: int) -> torch.Tensor:
        """See `DraftEngine`."""
        drafting = sum(chunk.num_draft_tokens > 0 for chunk in chunks)
        self._inputs = inputs = self._pass_inputs(
            [(chunk.request.row, chunk.start, chunk.stop) for chunk in chunks],
            drafting,
            num_steps,
            self._texts,
            [table.block_table.np for table in self._tables],
            self._sizes,
            self._device,
        )
        self._step = 0
        num_rows = self._runner.max_num_reqs
        self._blocks = [table.get_device_tensor(num_rows)[inputs.rows] for table in self._tables]
        batch = PassBatch(
            query_start=inputs.query_start,
            query_start_cpu=inputs.query_start_cpu,
            lengths=inputs.stops,
            blocks=self._blocks,
            slots=inputs.slots,
            longest_query=inputs.longest_chunk,
            longest=inputs.longest_text,
            step=0,
        )
        if self.ranks is not None:
            self.ranks.before_passes(rank_plan(chunks))
        # Where nothing is drafted, one row of logits is for nothing.
        logits = self._forward(inputs.token_ids, inputs.positions, inputs.last[: max(drafting, 1)], batch)
        return logits[:drafting]

    def step(self, token_ids: torch.Tensor) -> torch.Tensor:
        """See `DraftEngine`."""
        n, step, inputs = len(token_ids), self._step, self._inputs
        self._step += 1
        batch = PassBatch(
            query_start=self._starts[: n + 1],
            query_start_cpu=self._starts_cpu[: n + 1],
            lengths=inputs.stops_ahead[step, :n],
            blocks=[blocks[:n] for blocks in self._blocks],
            slots=inputs.slots_ahead[:, step, :n],
            longest_query=1,
            longest=inputs.longest_text + self._step,
            step=self._step,
        )
        return self._forward(token_ids.int(), inputs.positions_ahead[step, :n], self._rows[:n], batch)

    def constrain(self, logits: torch.Tensor, rows: torch.Tensor, drafts: torch.Tensor) -> torch.Tensor:
        """See `DraftEngine`."""
        metadata = self._runner.input_batch.sampling_metadata
        return constrain(SpeculatedRows(logits, rows, drafts), metadata)

    def _config_of_draft(self, vllm_config: "VllmConfig") -> "VllmConfig":
        return draft_vllm_config(vllm_config, self.model_config, model_config=self.model_config, quant_config=None)

    def _pass_of(self, target: torch.nn.Module, model: torch.nn.Module, layers: dict[str, "Attention"]) -> "DraftPass":
        return draft_pass(self._vllm_config, model, layers)

    @property
    def _texts(self) -> npt.NDArray[np.int32]:
        """[num_rows, any], the tokens that the model reads, by row of the batch."""
        texts: npt.NDArray[np.int32] = self._runner.input_batch.token_ids_cpu[:, self._shift :]
        return texts

    def _forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor, batch: PassBatch
    ) -> torch.Tensor:
        self._pass.prepare(batch)
        return self._pass.run(token_ids, positions, rows)

    def _fresh(self, request_id: str, num_computed_tokens: int, block_ids: Sequence[list[int]]) -> None:
        self.coverage.forget(request_id)
        for index, (group, size) in enumerate(zip(self._attention.kv_cache_groups, self._sizes, strict=True)):
            first = num_computed_tokens // size
            self.coverage.allocated(request_id, first, block_ids[group][first:], index)


def rank_plan(chunks: Sequence[TextChunk]) -> list[int]:
    """Returns what tensor-parallel ranks must have in common before their passes: rows, positions, draft lengths."""
    ends = (end for chunk in chunks for end in (chunk.request.row, chunk.start, chunk.stop))
    return [*ends, *(chunk.num_draft_tokens for chunk in chunks if chunk.num_draft_tokens)]
