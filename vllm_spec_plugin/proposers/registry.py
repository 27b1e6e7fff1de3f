"""From a configured method to its proposer."""

from collections.abc import Callable
from typing import Any

from vllm_spec_plugin.proposers.base import Proposer


def _ngram(config: Any, vocab_size: int) -> Proposer:
    from vllm_spec_plugin.proposers.ngram import NgramProposer

    return NgramProposer(
        mode=config.mode,
        min_order=config.min_order,
        max_order=config.max_order,
        window=config.window,
        draft_sampling=config.draft_sampling,
        vocab_size=vocab_size,
    )


# Each creator imports its own proposer: nobody waits for what they do not use.
_CREATORS: dict[str, Callable[[Any, int], Proposer]] = {"ngram": _ngram}


def create_proposer(config: Any, vocab_size: int) -> Proposer:
    """Builds the proposer of a `proposer` section of the configuration.

    Args:
        config: its pydantic model; `method` says which.
        vocab_size: the target's.
    """
    return _CREATORS[config.method](config, vocab_size)
