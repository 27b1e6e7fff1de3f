"""Lists the proposers that could be switched on, and the engines in which they are measured. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_spec_plugin.proposers.draft_model.config import DraftModelConfig
from vllm_spec_plugin.proposers.eagle3.config import Eagle3Config
from vllm_spec_plugin.proposers.grammar.config import GrammarConfig
from vllm_spec_plugin.proposers.medusa.checkpoint import HeadsConfig
from vllm_spec_plugin.proposers.medusa.config import MedusaConfig
from vllm_spec_plugin.proposers.native.config import METHOD as NATIVE
from vllm_spec_plugin.proposers.prediction.config import PredictionConfig
from vllm_spec_plugin.proposers.registry import BUNDLED, CASCADE, method_of
from vllm_spec_plugin.proposers.suffix.config import SuffixConfig
from vllm_spec_tools.bench.records import LoadAnswer

SUFFIX, PREDICTION, DRAFT_MODEL = method_of(SuffixConfig), method_of(PredictionConfig), method_of(DraftModelConfig)
MEDUSA, EAGLE3, GRAMMAR = method_of(MedusaConfig), method_of(Eagle3Config), method_of(GrammarConfig)
TREE = f"{MEDUSA} tree"
GRAMMAR_FIRST = f"{GRAMMAR} and {SUFFIX}"


@dataclass(frozen=True)
class Heads:
    """Medusa heads."""

    model: str
    config: HeadsConfig


@dataclass(frozen=True)
class Candidate:
    """A proposer that could be switched on.

    Attributes:
        lengths: numbers of draft tokens that are measured, rising; of a tree its size.
        method: method in requests, for an engine with several proposers; None is the engine's own.
    """

    name: str
    proposer: dict[str, Any]
    lengths: tuple[int, ...]
    method: str | None = None
    is_tree: bool = False

    @property
    def choices(self) -> range:
        """Returns the numbers of draft tokens to choose from."""
        return range(self.lengths[-1] if self.is_tree else 1, self.lengths[-1] + 1)


@dataclass(frozen=True)
class Engine:
    """An engine in which candidates are measured, with drafts of fixed length; requests set shorter ones."""

    name: str
    proposer: dict[str, Any]
    tokens: int
    candidates: tuple[Candidate, ...]

    @property
    def sections(self) -> dict[str, Any]:
        """Its plugin.yaml."""
        return {"proposer": self.proposer, "draft_length": {"policy": "fixed", "tokens": self.tokens}}


def native_name(config: Mapping[str, Any]) -> str:
    """Names the candidate of one of vLLM's own drafters, by its speculative config."""
    return f"{NATIVE} {config['method']}"


def chain_engines(
    draft: str | None,
    heads: Heads | None,
    tokens: int,
    *,
    eagle3: str | None = None,
    natives: Sequence[Mapping[str, Any]] = (),
    has_predictions: bool = False,
    has_schemas: bool = False,
) -> tuple[Engine, ...]:
    """Returns the engines of all candidates that draft chains.

    Predicted outputs, suffixes and a draft model are members of one cascade, whose requests select one of them
    or all: fewer engines to start. Grammars and suffixes are another one: models may not come after grammars on the V1
    runner.

    Args:
        natives: vLLM's own drafters, speculative configs without a number of tokens.
    """
    members = [_section(PREDICTION)] if has_predictions else []
    members.append(_section(SUFFIX))
    if draft is not None:
        members.append(_section(DRAFT_MODEL, draft))
    engines = [_cascade_engine(members, tokens) if len(members) > 1 else _engine(members[0], tokens)]
    if has_schemas:
        engines.append(_grammar_engine(tokens))
    if eagle3 is not None:
        engines.append(_engine(_section(EAGLE3, eagle3), tokens))
    for config in natives:
        engines.append(_engine({"method": NATIVE, "config": dict(config)}, tokens, native_name(config)))
    if heads is not None:
        engines.append(_engine(_section(MEDUSA, heads.model), min(tokens, heads.config.num_heads)))
    return tuple(engines)


def tree_engine(heads: Heads, size: int) -> Engine:
    """Returns the engine of Medusa's best tree of `size` tokens."""
    proposer = _section(MEDUSA, heads.model) | {"tree": "auto"}
    return Engine(TREE, proposer, size, (Candidate(TREE, proposer, (size,), is_tree=True),))


def lengths(most: int) -> tuple[int, ...]:
    """Returns the draft lengths that are measured: powers of 2, and the longest."""
    return tuple(sorted({most} | {2**power for power in range(most.bit_length()) if 2**power <= most}))


def _engine(proposer: dict[str, Any], tokens: int, name: str = "") -> Engine:
    """Returns the engine of one proposer, called after its method if it has no other name."""
    name = name or proposer["method"]
    return Engine(name, proposer, tokens, (Candidate(name, proposer, lengths(tokens)),))


def _cascade_engine(members: Sequence[dict[str, Any]], tokens: int) -> Engine:
    """Returns the engine of several proposers: each is a candidate, and their cascade."""
    methods, cascade = [member["method"] for member in members], {"method": CASCADE, "proposers": list(members)}
    alone = (
        Candidate(method, member, lengths(tokens), method) for method, member in zip(methods, members, strict=True)
    )
    name = f"{', '.join(methods[:-1])} and {methods[-1]}"
    return Engine(name, cascade, tokens, (*alone, Candidate(CASCADE, cascade, lengths(tokens))))


def _grammar_engine(tokens: int) -> Engine:
    """Returns the engine of grammars: they are a candidate, and so are grammars before suffixes."""
    grammar = _section(GRAMMAR)
    both = {"method": CASCADE, "proposers": [grammar, _section(SUFFIX)]}
    candidates = (
        Candidate(GRAMMAR, grammar, lengths(tokens), GRAMMAR),
        Candidate(GRAMMAR_FIRST, both, lengths(tokens)),
    )
    return Engine(GRAMMAR_FIRST, both, tokens, candidates)


def _section(method: str, *models: str) -> dict[str, Any]:
    """Returns the section of a method with its models."""
    [kind] = [kind for kind in BUNDLED if method_of(kind) == method]
    return {"method": method, **dict(zip(kind.model_keys, models, strict=True))}


NONE = "none"


@dataclass(frozen=True)
class Setting:
    """Proposer and draft length of a job's requests.

    Attributes:
        candidate: the proposer's name; `NONE` is the engine without speculation.
        tokens: most draft tokens; 0 there.
    """

    candidate: str
    tokens: int

    def __str__(self) -> str:
        return self.candidate if self.candidate == NONE else f"{self.candidate}, {self.tokens} tokens"


@dataclass(frozen=True)
class Sample:
    """A job that was done.

    Attributes:
        others: cores that other processes used meanwhile, on average; None is not known.
    """

    setting: Setting
    workload: str
    concurrency: int
    answer: LoadAnswer
    others: float | None = None


@dataclass(frozen=True)
class MeasuredCandidate:
    """Measurements of an engine, in turns with the one without speculation.

    Attributes:
        first_tokens: seconds from asking to the first token of each request that joined others in a closed loop, by
            setting and concurrency.
    """

    engine: Engine
    samples: tuple[Sample, ...]
    first_tokens: Mapping[tuple[Setting, int], Sequence[float]] = field(default_factory=dict)

    def of(self, candidate: str, concurrency: int | None = None, tokens: int | None = None) -> list[Sample]:
        """Returns the samples of a candidate or of `NONE`, at one concurrency and draft length or at all."""
        return [
            sample
            for sample in self.samples
            if sample.setting.candidate == candidate
            and concurrency in (None, sample.concurrency)
            and tokens in (None, sample.setting.tokens)
        ]

    def first_token_seconds(self, setting: Setting, concurrency: int) -> Sequence[float]:
        """Seconds of steps with a prompt in them; of one request alone in its jobs, of several in a closed loop."""
        if concurrency == 1:
            steps = (step for sample in self.of(setting.candidate, 1, setting.tokens) for step in sample.answer.steps)
            return [step.seconds for step in steps if step.in_prompt]
        return self.first_tokens.get((setting, concurrency), ())

    def at(self, concurrency: int) -> list[Sample]:
        """Returns the samples of all that drafts at one concurrency."""
        return [s for s in self.samples if s.setting.candidate != NONE and s.concurrency == concurrency]
