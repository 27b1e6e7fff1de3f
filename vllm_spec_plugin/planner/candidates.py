"""What could be switched on, and the engines in which it is measured. Pure."""

from dataclasses import dataclass
from typing import Any

from vllm_spec_plugin.proposers.medusa.checkpoint import MedusaConfig

NGRAM, DRAFT_MODEL, CASCADE, MEDUSA, TREE = "ngram", "draft_model", "cascade", "medusa", "medusa tree"
# Shorter matches are wrong too often to be worth a target that is not idle, and for a draft model to wait for.
_MIN_ORDER = 3


@dataclass(frozen=True)
class Heads:
    """Medusa heads.

    Attributes:
        model: their folder's absolute path, or a hub name.
        config: what the folder says of them.
    """

    model: str
    config: MedusaConfig


@dataclass(frozen=True)
class Candidate:
    """A proposer that could be switched on.

    Attributes:
        name: as it is called in the report.
        proposer: the section of a plugin.yaml.
        lengths: numbers of draft tokens that are measured, rising; of a tree its size.
        method: what requests ask for, in an engine that has several proposers; None is what that engine does.
        is_tree: whether its drafts are verified whole or not at all.
    """

    name: str
    proposer: dict[str, Any]
    lengths: tuple[int, ...]
    method: str | None = None
    is_tree: bool = False

    @property
    def choices(self) -> range:
        """The numbers of draft tokens to choose from."""
        return range(self.lengths[-1] if self.is_tree else 1, self.lengths[-1] + 1)


@dataclass(frozen=True)
class Engine:
    """An engine that candidates are measured in, with drafts of fixed length; requests ask for less.

    Attributes:
        name: as it is called while it runs.
        proposer: the section of its plugin.yaml.
        tokens: its draft length.
        candidates: what is measured in it.
    """

    name: str
    proposer: dict[str, Any]
    tokens: int
    candidates: tuple[Candidate, ...]

    @property
    def sections(self) -> dict[str, Any]:
        """Its plugin.yaml."""
        return {"proposer": self.proposer, "draft_length": {"policy": "fixed", "tokens": self.tokens}}


def chain_engines(draft: str | None, heads: Heads | None, tokens: int) -> tuple[Engine, ...]:
    """The engines of all candidates that draft chains.

    n-grams and a draft model are members of one cascade, whose requests ask for one of them or for both: an engine
    less to start.

    Args:
        draft: the draft model's path or name; None is without.
        heads: Medusa heads; None is without.
        tokens: the longest draft.
    """
    ngram = {"method": "ngram", "min_order": _MIN_ORDER}
    chain = lengths(tokens)
    if draft is None:
        engines = [Engine(NGRAM, ngram, tokens, (Candidate(NGRAM, ngram, chain),))]
    else:
        small = {"method": "draft_model", "model": draft}
        both = {"method": "cascade", "proposers": [ngram, small]}
        members = (
            Candidate(NGRAM, ngram, chain, "ngram"),
            Candidate(DRAFT_MODEL, small, chain, "draft_model"),
            Candidate(CASCADE, both, chain),
        )
        engines = [Engine(f"{NGRAM} and {DRAFT_MODEL}", both, tokens, members)]
    if heads is not None:
        most = min(tokens, heads.config.num_heads)
        medusa = _medusa(heads)
        engines.append(Engine(MEDUSA, medusa, most, (Candidate(MEDUSA, medusa, lengths(most)),)))
    return tuple(engines)


def tree_engine(heads: Heads, size: int) -> Engine:
    """The engine of Medusa's best tree of `size` tokens."""
    proposer = _medusa(heads) | {"tree": "auto"}
    return Engine(TREE, proposer, size, (Candidate(TREE, proposer, (size,), is_tree=True),))


def lengths(most: int) -> tuple[int, ...]:
    """The draft lengths that are measured: powers of 2, and the longest."""
    return tuple(sorted({most} | {2**power for power in range(most.bit_length()) if 2**power <= most}))


def _medusa(heads: Heads) -> dict[str, Any]:
    return {"method": "medusa", "model": heads.model, "draft_sampling": "probabilistic"}
