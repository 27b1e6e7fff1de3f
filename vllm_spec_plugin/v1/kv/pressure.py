"""Chooses the drafts to drop when KV blocks run short."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Demand:
    """KV blocks that a running request holds, and tokens that need slots in the next step.

    Attributes:
        num_blocks: blocks it holds, per KV group.
        num_tokens: tokens of its text, without drafts.
        num_new_tokens: tokens of its text that are not computed yet.
        num_drafts: draft tokens that wait for verification.
    """

    num_blocks: tuple[int, ...]
    num_tokens: int
    num_new_tokens: int
    num_drafts: int


def keep_drafts(
    demands: Sequence[Demand], block_sizes: Sequence[int], num_free_blocks: int, token_budget: int
) -> list[int]:
    """Keeps only drafts that fit in the blocks that running requests' texts leave free.

    All texts come first: in any order of scheduling and with any split of the token budget, each text finds the blocks
    that it would find without drafts. Then come drafts, those of earlier requests first. Drafts that fit in the blocks
    of their own text are always kept.

    The plan assumes that each request is then rolled back to its text and its kept drafts: blocks held only for drafts
    count as free.

    Args:
        demands: demands of the running requests, in scheduling order.
        block_sizes: tokens per block of each KV group.
        num_free_blocks: free blocks in the pool, for all groups.
        token_budget: maximum tokens of one request in the step.

    Returns:
        The number of drafts that each request keeps.
    """
    of_texts = [
        [
            max(min(held, _blocks(demand.num_tokens, size)), _blocks(_end_of_text(demand, token_budget), size))
            for held, size in zip(demand.num_blocks, block_sizes, strict=True)
        ]
        for demand in demands
    ]
    num_held = sum(sum(demand.num_blocks) for demand in demands)
    # Below zero, texts alone need too many blocks, and vLLM preempts a request.
    left = max(0, num_free_blocks + num_held - sum(map(sum, of_texts)))
    kept = []
    for demand, of_text in zip(demands, of_texts, strict=True):
        num_drafts = demand.num_drafts
        while num_drafts and _beyond(demand.num_tokens + num_drafts, of_text, block_sizes) > left:
            num_drafts -= 1
        if num_drafts:
            left -= _beyond(demand.num_tokens + num_drafts, of_text, block_sizes)
        kept.append(num_drafts)
    return kept


def _blocks(num_tokens: int, block_size: int) -> int:
    return -(-num_tokens // block_size)


def _end_of_text(demand: Demand, token_budget: int) -> int:
    return demand.num_tokens - max(0, demand.num_new_tokens - token_budget)


def _beyond(num_tokens: int, num_blocks: Sequence[int], block_sizes: Sequence[int]) -> int:
    return sum(max(0, _blocks(num_tokens, size) - held) for held, size in zip(num_blocks, block_sizes, strict=True))
