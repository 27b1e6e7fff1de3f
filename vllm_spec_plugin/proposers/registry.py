"""From a configured method to its proposer."""

from collections.abc import Callable
from typing import Any

from vllm_spec_plugin.proposers.base import Proposer


def _ngram(config: Any, vocab_size: int, engine: Any) -> Proposer:
    from vllm_spec_plugin.proposers.ngram import NgramProposer

    return NgramProposer(
        mode=config.mode,
        min_order=config.min_order,
        max_order=config.max_order,
        window=config.window,
        draft_sampling=config.draft_sampling,
        vocab_size=vocab_size,
    )


def _draft_model(config: Any, vocab_size: int, engine: Any) -> Proposer:
    from vllm_spec_plugin.proposers.draft_model.growing import DraftSettings
    from vllm_spec_plugin.proposers.draft_model.proposer import DraftModelProposer

    settings = DraftSettings(
        draft_sampling=config.draft_sampling,
        draft_temperature=config.draft_temperature,
        min_confidence=config.min_confidence,
        catch_up_tokens=config.catch_up_tokens,
    )
    return DraftModelProposer(engine, settings)


# Each creator imports its own proposer: nobody waits for what they do not use.
_CREATORS: dict[str, Callable[[Any, int, Any], Proposer]] = {"ngram": _ngram, "draft_model": _draft_model}


def create_proposer(config: Any, vocab_size: int, engine: Any = None) -> Proposer:
    """Builds the proposer of a `proposer` section of the configuration.

    Args:
        config: its pydantic model; `method` says which.
        vocab_size: the target's.
        engine: runs the draft model (a `DraftEngine`), for methods that have one.
    """
    return _CREATORS[config.method](config, vocab_size, engine)
