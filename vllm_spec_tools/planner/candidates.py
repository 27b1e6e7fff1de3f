"""Lists the proposers that could be switched on, and the engines in which they are measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.proposers.draft_model.config import DraftModelConfig
from vllm_spec_plugin.proposers.eagle3.config import Eagle3Config
from vllm_spec_plugin.proposers.grammar.config import GrammarConfig
from vllm_spec_plugin.proposers.medusa.checkpoint import read_heads_config
from vllm_spec_plugin.proposers.medusa.config import MedusaConfig
from vllm_spec_plugin.proposers.model_source import ModelSource
from vllm_spec_plugin.proposers.native.config import METHOD as NATIVE
from vllm_spec_plugin.proposers.native.config import NativeConfig
from vllm_spec_plugin.proposers.prediction.config import PredictionConfig
from vllm_spec_plugin.proposers.registry import CASCADE, method_of
from vllm_spec_plugin.proposers.section import Target
from vllm_spec_plugin.proposers.suffix.config import SuffixConfig
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.bench.arms import EXAMPLE, PlannedArm
from vllm_spec_tools.bench.engine_args import ArmPlan
from vllm_spec_tools.engines.engine_options import speculative_json
from vllm_spec_tools.engines.memory import weight_bytes

SUFFIX, PREDICTION, DRAFT_MODEL = method_of(SuffixConfig), method_of(PredictionConfig), method_of(DraftModelConfig)
MEDUSA, EAGLE3, GRAMMAR = method_of(MedusaConfig), method_of(Eagle3Config), method_of(GrammarConfig)
TREE = f"{MEDUSA} tree"
# Of vLLM's methods.
_WITHOUT_WEIGHTS = ("ngram", "ngram_gpu", "suffix")


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

    @property
    def choices(self) -> range:
        """Returns the numbers of draft tokens to choose from: a tree is drafted whole."""
        return range(self.lengths[-1] if self.name == TREE else 1, self.lengths[-1] + 1)

    def arm(self, tokens: int) -> str:
        """Names the arm with that draft length."""
        return f"{self.name}, K = {tokens}"

    @property
    def models(self) -> list[str]:
        """Folders or hub names of its models."""
        return ArmPlan(None, {"proposer": self.proposer}).draft_models


@dataclass(frozen=True)
class CandidateEngine:
    """An engine in which candidates are measured, with drafts of fixed length; requests set shorter ones."""

    name: str
    proposer: dict[str, Any]
    tokens: int
    candidates: tuple[Candidate, ...]

    @property
    def sections(self) -> dict[str, Any]:
        """Its plugin.yaml."""
        return {"proposer": self.proposer, "draft_length": {"policy": "fixed", "tokens": self.tokens}}

    def arms(self, plan: ArmPlan) -> dict[str, PlannedArm]:
        """Returns an arm per candidate and draft length, by name."""
        return {
            candidate.arm(tokens): PlannedArm(plan, tokens, candidate.method)
            for candidate in self.candidates
            for tokens in candidate.lengths
        }


def candidate_engines(
    tokens: int,
    *,
    draft: str | None = None,
    medusa: str | None = None,
    eagle3: str | None = None,
    natives: Sequence[Mapping[str, Any]] = (),
    has_predictions: bool = False,
    has_schemas: bool = False,
) -> tuple[CandidateEngine, ...]:
    """Returns the engines of all candidates.

    Predicted outputs, suffixes and a draft model are members of one cascade, whose requests select one of them
    or all: fewer engines to start. Grammars and suffixes are another one: models may not come after grammars on the V1
    runner.

    Args:
        tokens: maximum draft length.
        natives: vLLM's own drafters, speculative configs without a number of tokens.

    Raises:
        UnreadableError: there are no heads.
    """
    suffix = {"method": SUFFIX}
    members = [{"method": PREDICTION}] * has_predictions + [suffix]
    members += [{"method": DRAFT_MODEL, "model": draft}] if draft is not None else []
    engines = [_cascade_engine(members, tokens, CASCADE)]
    if has_schemas:
        engines.append(_cascade_engine([{"method": GRAMMAR}, suffix], tokens, f"{GRAMMAR} and {SUFFIX}", alone=1))
    if eagle3 is not None:
        engines.append(_engine(EAGLE3, {"method": EAGLE3, "model": eagle3}, lengths(tokens)))
    for config in natives:
        section = {"method": NATIVE, "config": dict(config)}
        engines.append(_engine(f"{NATIVE} {config['method']}", section, lengths(tokens)))
    if medusa is not None:
        heads, section = read_heads_config(medusa), {"method": MEDUSA, "model": medusa}
        engines.append(_engine(MEDUSA, section, lengths(min(tokens, heads.num_heads))))
        if heads.accuracy is not None:
            engines.append(_engine(TREE, section | {"tree": "auto"}, (tokens,)))
    return tuple(engines)


def lengths(most: int) -> tuple[int, ...]:
    """Returns the draft lengths that are measured: powers of 2, and the longest."""
    return tuple(sorted({most} | {2**power for power in range(most.bit_length()) if 2**power <= most}))


def _engine(name: str, proposer: dict[str, Any], measured: tuple[int, ...]) -> CandidateEngine:
    return CandidateEngine(name, proposer, measured[-1], (Candidate(name, proposer, measured),))


def _cascade_engine(
    members: Sequence[dict[str, Any]], tokens: int, name: str, alone: int | None = None
) -> CandidateEngine:
    """Returns the engine of several proposers: the first `alone`, or all, are candidates, and so is their cascade."""
    if len(members) == 1:
        return _engine(members[0]["method"], members[0], lengths(tokens))
    cascade = {"method": CASCADE, "proposers": list(members)}
    own = [Candidate(one["method"], one, lengths(tokens), one["method"]) for one in members[:alone]]
    methods = [one["method"] for one in members]
    return CandidateEngine(
        f"{', '.join(methods[:-1])} and {methods[-1]}",
        cascade,
        tokens,
        (*own, Candidate(name, cascade, lengths(tokens))),
    )


def read_natives(words: Sequence[str]) -> tuple[dict[str, Any], ...]:
    """Returns the speculative configs of vLLM's own drafters from values of `--arm`, with folders absolute.

    Raises:
        UserError: one is not vllm:JSON, has no method, a method twice, or a key that the plugin's draft length sets.
    """
    natives: list[dict[str, Any]] = []
    for word in words:
        kind, _, text = word.partition(":")
        if kind != NATIVE:
            raise UserError(f"--arm {word}: with --recommend; allowed: vllm:JSON; proposers are --draft, --medusa ...")
        config = speculative_json(f"--arm {word}", text, EXAMPLE)
        if "num_speculative_tokens" in config:
            raise UserError(
                f"--arm {word}: with --recommend, --tokens is the longest draft; allowed: no num_speculative_tokens"
            )
        parsed = parse_config({"proposer": {"method": NATIVE, "config": config}}, f"--arm {word}").proposer
        assert isinstance(parsed, NativeConfig)
        own = parsed.resolved(Path.cwd()).config
        if own["method"] in {config["method"] for config in natives}:
            raise UserError(f"--arm {word}: {own['method']} was given before; allowed: each method once")
        natives.append(own)
    return tuple(natives)


def check_models(model: str, **models: str | None) -> list[str]:
    """Checks that models go with the target, before an engine starts.

    Args:
        models: by option: draft, medusa and eagle3.

    Returns:
        Warnings.

    Raises:
        ConfigError: one cannot be read, or does not fit.
    """
    methods, warnings = {"draft": DRAFT_MODEL, "medusa": MEDUSA, "eagle3": EAGLE3}, list[str]()
    for option, name in models.items():
        if name is not None:
            config = parse_config({"proposer": {"method": methods[option], "model": name}}, f"--{option}")
            warnings += config.proposers[0].check(Target(ModelSource(model)), 1, f"--{option}")
    return warnings


class Memory(NamedTuple):
    """Bytes of a model's weights, None is not known, and of its KV cache for each token of a text."""

    weights: int | None
    kv_per_token: int


def memory_of(candidate: Candidate, target: Mapping[str, Any], own: Mapping[str, Any]) -> Memory:
    """Returns the memory that a candidate takes beside the target.

    Args:
        target: facts of the engine without speculation.
        own: facts of the candidate's engine.
    """
    native = candidate.proposer.get("config", {}).get("method")
    if not candidate.models and (native is None or native in _WITHOUT_WEIGHTS):
        return Memory(0, 0)
    sizes = [weight_bytes(model, str(target["dtype"])) for model in candidate.models]
    weights = None if None in sizes or not sizes else sum(filter(None, sizes))
    return Memory(weights, own["kv_bytes_per_token"] - target["kv_bytes_per_token"])
