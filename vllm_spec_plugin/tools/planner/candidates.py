"""What could be switched on, and the engines in which it is measured. Pure."""

from dataclasses import dataclass
from typing import Any

from vllm_spec_plugin.proposers.eagle3.config import Eagle3Config
from vllm_spec_plugin.proposers.medusa.checkpoint import MedusaConfig
from vllm_spec_plugin.proposers.prediction.config import PredictionConfig
from vllm_spec_plugin.proposers.registry import BUNDLED, CASCADE, method_of
from vllm_spec_plugin.proposers.suffix.config import SuffixConfig


def _method(*, keeps_kv: bool = False, uses_hidden_states: bool = False) -> str:
    """The plugin's first method with these needs: the planner tries one of each kind."""
    wanted = (keeps_kv, uses_hidden_states)
    return next(method_of(kind) for kind in BUNDLED if (kind.keeps_kv, kind.uses_hidden_states) == wanted)


NGRAM, DRAFT_MODEL, MEDUSA = _method(), _method(keeps_kv=True), _method(uses_hidden_states=True)
SUFFIX, PREDICTION, EAGLE3 = method_of(SuffixConfig), method_of(PredictionConfig), method_of(Eagle3Config)
TREE = f"{MEDUSA} tree"


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
        method: method in requests, for an engine with several proposers; None is the engine's own.
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
    """An engine in which candidates are measured, with drafts of fixed length; requests set shorter ones.

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


def chain_engines(
    draft: str | None, heads: Heads | None, tokens: int, *, eagle3: str | None = None, has_predictions: bool = False
) -> tuple[Engine, ...]:
    """The engines of all candidates that draft chains.

    n-grams and a draft model are members of one cascade, whose requests select one of them or both: an engine
    less to start. So are predicted outputs and suffixes, where requests have predictions.

    Args:
        draft: the draft model's path or name; None is without.
        heads: Medusa heads; None is without.
        tokens: the longest draft.
        eagle3: an EAGLE-3 head's path or name; None is without.
        has_predictions: whether requests predict their outputs.
    """
    ngram = _section(NGRAM)
    chain = lengths(tokens)
    if draft is None:
        engines = [Engine(NGRAM, ngram, tokens, (Candidate(NGRAM, ngram, chain),))]
    else:
        small = _section(DRAFT_MODEL, draft)
        both = {"method": CASCADE, "proposers": [ngram, small]}
        members = (
            Candidate(NGRAM, ngram, chain, NGRAM),
            Candidate(DRAFT_MODEL, small, chain, DRAFT_MODEL),
            Candidate(CASCADE, both, chain),
        )
        engines = [Engine(f"{NGRAM} and {DRAFT_MODEL}", both, tokens, members)]
    suffix = _section(SUFFIX)
    if has_predictions:
        prediction = _section(PREDICTION)
        both = {"method": CASCADE, "proposers": [prediction, suffix]}
        pair = Candidate(PREDICTION, prediction, chain, PREDICTION), Candidate(SUFFIX, suffix, chain, SUFFIX)
        engines.append(Engine(f"{PREDICTION} and {SUFFIX}", both, tokens, pair))
    else:
        engines.append(Engine(SUFFIX, suffix, tokens, (Candidate(SUFFIX, suffix, chain),)))
    if eagle3 is not None:
        head = _section(EAGLE3, eagle3)
        engines.append(Engine(EAGLE3, head, tokens, (Candidate(EAGLE3, head, chain),)))
    if heads is not None:
        most = min(tokens, heads.config.num_heads)
        medusa = _section(MEDUSA, heads.model)
        engines.append(Engine(MEDUSA, medusa, most, (Candidate(MEDUSA, medusa, lengths(most)),)))
    return tuple(engines)


def tree_engine(heads: Heads, size: int) -> Engine:
    """The engine of Medusa's best tree of `size` tokens."""
    proposer = _section(MEDUSA, heads.model) | {"tree": "auto"}
    return Engine(TREE, proposer, size, (Candidate(TREE, proposer, (size,), is_tree=True),))


def lengths(most: int) -> tuple[int, ...]:
    """The draft lengths that are measured: powers of 2, and the longest."""
    return tuple(sorted({most} | {2**power for power in range(most.bit_length()) if 2**power <= most}))


def _section(method: str, *models: str) -> dict[str, Any]:
    """The section of a method with its models."""
    [kind] = [kind for kind in BUNDLED if method_of(kind) == method]
    return {"method": method, **dict(zip(kind.model_keys, models, strict=True)), **kind.planned_keys}
