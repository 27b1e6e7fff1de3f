"""The interface between the proposer and the engine that runs the draft model."""

from collections.abc import Sequence
from typing import Protocol

import torch

from vllm_spec_plugin.v1.proposers.draft_model.catch_up import TextChunk
from vllm_spec_plugin.v1.proposers.draft_model.coverage import BlockTables, DraftCoverage


class DraftEngine(Protocol):
    """Runs the draft model on the batch of the current step.

    Attributes:
        coverage: positions that the draft model has computed.
        max_len: the draft model's context length, in tokens.
    """

    coverage: DraftCoverage
    max_len: int

    def block_tables(self, row: int) -> BlockTables:
        """Returns the block ids of the request in batch row `row`, by KV group; views, valid in this step."""
        ...

    def start(self, chunks: Sequence[TextChunk], num_steps: int) -> torch.Tensor:
        """Computes the chunks, and prepares up to `num_steps` calls of `step`.

        Returns:
            [number of chunks with drafts, vocab_size], logits after each chunk's last token.
        """
        ...

    def step(self, token_ids: torch.Tensor) -> torch.Tensor:
        """Computes one more token for each of the first `len(token_ids)` chunks.

        Args:
            token_ids: [n] int64, n not above that of the call before.

        Returns:
            [n, vocab_size].
        """
        ...

    def constrain(self, logits: torch.Tensor, rows: torch.Tensor, drafts: torch.Tensor) -> torch.Tensor:
        """Applies the requests' sampling pipelines, with draft tokens added to the context.

        Args:
            logits: [n, vocab_size].
            rows: [n] int64, rows of the batch.
            drafts: [n, any] int64, padded with negative values.

        Returns:
            [n, vocab_size]; softmax of it is q for sampled requests, its argmax the token of greedy ones.
        """
        ...
