"""What the proposer asks of whoever runs the draft model."""

from collections.abc import Sequence
from typing import Protocol

import torch

from vllm_spec_plugin.proposers.draft_model.catch_up import Chunk
from vllm_spec_plugin.proposers.draft_model.coverage import BlockTables, DraftCoverage


class DraftEngine(Protocol):
    """Runs the draft model on the batch of the current step.

    Attributes:
        coverage: what the draft has computed.
        max_len: its context, in tokens.
    """

    coverage: DraftCoverage
    max_len: int

    def block_tables(self, row: int) -> BlockTables:
        """The block ids of the request at that place of the batch, by KV group; views, valid in this step."""
        ...

    def start(self, chunks: Sequence[Chunk], num_steps: int) -> torch.Tensor:
        """Computes the chunks, and gets ready for up to `num_steps` calls of `step`.

        Returns:
            [number of chunks with drafts to make, vocab_size]: the logits after each one's last token.
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

    def num_branches(self, row: int, depth: int) -> int:
        """How many branches of that many tokens the request at that place of the batch has blocks for, at least 1."""
        ...

    def branch(self, counts: Sequence[int]) -> None:
        """After `start`: makes `counts[i]` sequences, at least 0, of chunk i with drafts to make, in order."""
        ...

    def keep(self, chosen: torch.Tensor) -> None:
        """Makes the chunks, or sequences, at `chosen` ([n] int64, ascending) the first n."""
        ...

    def constrain(
        self, logits: torch.Tensor, rows: torch.Tensor, drafts: torch.Tensor, temperature: float | None
    ) -> torch.Tensor:
        """Applies the requests' sampling pipelines, with the context grown by drafts.

        Args:
            logits: [n, vocab_size].
            rows: [n] int64, places in the batch.
            drafts: [n, most] int64, negative where there are fewer.
            temperature: of sampled requests, in place of their own.

        Returns:
            [n, vocab_size]; softmax of it is q for sampled requests, its argmax the token of greedy ones.
        """
        ...
