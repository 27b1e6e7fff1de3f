"""Groups of ways to draft that rules of the gate refuse together."""

from dataclasses import dataclass

from vllm_spec_plugin.gate.ways import Part, Way


@dataclass(frozen=True)
class Scope:
    """Ways to draft that rules refuse together.

    Attributes:
        name: the scope in tables.
        ways: the ways.
        instead: the way out without changing the refused key or option.
        elsewhere: why the rules are not needed for the other ways.
        part: the part of own proposers that is refused; None is all of them.
    """

    name: str
    ways: frozenset[Way]
    instead: str
    elsewhere: str
    part: Part | None = None


_OWN = frozenset({Way.OWN, Way.TOKEN_ONLY_V1})
OWN = Scope(
    "own proposers, V1",
    _OWN,
    "draft on the V2 runner, with suffix, ngram, prediction, grammar, medusa or draft_model, or with method vllm",
    "vLLM computes and verifies, and refuses what it cannot serve",
)
TREES = Scope(
    "trees", _OWN, "draft chains: leave proposer.tree out", "drafts are chains, which vLLM verifies", Part.TREES
)
DRAFT_MODELS = Scope(
    "own draft models",
    _OWN,
    "choose a proposer without a draft model, such as ngram",
    "draft models are vLLM's, which refuses what it cannot serve",
    Part.DRAFT_MODEL,
)
GRAMMARS_IN_WORKERS = Scope(
    "grammar, then own models, V1",
    frozenset({Way.OWN}),
    "leave grammar out",
    "the scheduler's process drafts from grammars",
    Part.GRAMMAR,
)
BY_VLLM = Scope(
    "verified by vLLM",
    frozenset(Way) - _OWN,
    "start without speculation",
    "own proposers are refused with any such model, and have a scorer of the plugin",
)
DRAFTER_PASSES = Scope(
    "drafters in the worker, verified by vLLM",
    frozenset(Way) - _OWN - {Way.TOKEN_ONLY},
    "draft with suffix, ngram, prediction or grammar alone, on the V2 runner",
    "own proposers are refused with pipeline stages; token-only drafts are made before a step is planned",
)
BESIDE_VLLM = Scope(
    "token-only proposers and heads, verified by vLLM",
    frozenset(Way) - _OWN - {Way.VLLM_V1, Way.VLLM_V2, Way.VLLM_ASYNC},
    "draft with method vllm alone, or on the V1 runner",
    "vLLM combines its drafters with connectors; own proposers have a rule of their own",
)
