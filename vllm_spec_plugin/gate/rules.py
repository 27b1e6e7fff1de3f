"""The table of features that are refused at start-up, by model and server.

Everything that no engine test covers is refused: silently wrong outputs are worse than a server that does not start.
To serve more, add an engine test and remove the rule.
"""

from collections.abc import Callable
from dataclasses import dataclass

from vllm_spec_plugin.compat.model_facts import Facts, Layer, ModelFacts
from vllm_spec_plugin.gate.scopes import (
    BESIDE_VLLM,
    BY_VLLM,
    DRAFT_MODELS,
    DRAFTER_PASSES,
    GRAMMARS_IN_WORKERS,
    OWN,
    TREES,
    Scope,
)
from vllm_spec_plugin.gate.ways import Part, Way
from vllm_spec_plugin.schema.errors import show_text


@dataclass(frozen=True)
class Rule:
    """Refuses ways to draft with certain models or servers.

    Attributes:
        subject: the key or option to change.
        scope: the ways that are refused.
        found: returns the value that is refused; empty if there is none.
        reason: why it is not served with that value.
        allowed: the values that are served.
    """

    subject: str
    scope: Scope
    found: Callable[[Facts], str]
    reason: str
    allowed: str

    def applies(self, way: Way, parts: frozenset[Part]) -> bool:
        """Whether it refuses a way to draft, whose configuration has these parts."""
        return way in self.scope.ways and (self.scope.part is None or self.scope.part in parts)


def _target_has(kind: Layer) -> Callable[[Facts], str]:
    return lambda facts: _having(facts.target, kind)


def _draft_has(kind: Layer) -> Callable[[Facts], str]:
    return lambda facts: _having(facts.draft, kind) if facts.draft else ""


def _having(model: ModelFacts, kind: Layer) -> str:
    return f"{_shown(model)}, which has {kind}" if kind in model.layers else ""


def _wrong_on_cpu(kind: Layer) -> Callable[[Facts], str]:
    return lambda facts: _having(facts.target, kind) if facts.server.on_cpu else ""


def _untested_layers(model: ModelFacts | None) -> str:
    kinds = model.layers - {Layer.FULL, Layer.SLIDING, Layer.MLA, Layer.RECURRENT} if model else ()
    return f"{_shown(model)}, which has {', '.join(sorted(kinds))}" if model and kinds else ""


def _not_generating(model: ModelFacts | None) -> str:
    return f"{_shown(model)}, which does not generate token by token" if model and not model.generates else ""


def _shared_experts(facts: Facts, model: ModelFacts | None) -> str:
    size = facts.server.data_parallel_size
    found = _with_experts(model)
    return f"{size} with {found}" if size > 1 and found else ""


def _with_experts(model: ModelFacts | None) -> str:
    return f"{_shown(model)}, which has experts" if model and model.is_moe else ""


def _above_one(name: str) -> Callable[[Facts], str]:
    def found(facts: Facts) -> str:
        size: int = getattr(facts.server, name)
        return str(size) if size > 1 else ""

    return found


def _late_drafts(facts: Facts) -> str:
    return "" if facts.server.is_asynchronous else _above_one("pipeline_parallel_size")(facts)


def _untested_connector(facts: Facts) -> str:
    connector = facts.server.kv_connector
    return "" if connector in TESTED_CONNECTORS else connector


def _shown(model: ModelFacts) -> str:
    return f"'{show_text(model.name, 200)}' ({model.architecture})"


TESTED_CONNECTORS = ("ExampleConnector", "DecodeBenchConnector")
"""KV connectors that engine tests cover."""
SERVED_LAYERS = "models whose layers are full or sliding-window attention"

RULES: tuple[Rule, ...] = (
    Rule(
        "--model",
        OWN,
        _target_has(Layer.RECURRENT),
        "vLLM computes recurrent state wrongly with speculation (seen in 0.32 and 0.33)",
        SERVED_LAYERS,
    ),
    Rule(
        "--model",
        OWN,
        _target_has(Layer.MLA),
        "vLLM computes different logits when it verifies drafts (seen in 0.32 and 0.33)",
        SERVED_LAYERS,
    ),
    Rule(
        "--model",
        BY_VLLM,
        _wrong_on_cpu(Layer.RECURRENT),
        "vLLM computes recurrent state wrongly with speculation on a CPU",
        "a GPU",
    ),
    Rule(
        "--model",
        BY_VLLM,
        _wrong_on_cpu(Layer.MLA),
        "vLLM computes different logits when it verifies drafts on a CPU",
        "a GPU",
    ),
    Rule(
        "--model",
        OWN,
        lambda facts: _untested_layers(facts.target),
        "drafts were not tested with it",
        SERVED_LAYERS,
    ),
    Rule(
        "--model",
        OWN,
        lambda facts: _not_generating(facts.target),
        "there is nothing to draft",
        "decoder-only models that generate text",
    ),
    Rule(
        "--model",
        OWN,
        lambda facts: f"{_shown(facts.target)}, which takes images or other media" * facts.target.takes_media,
        "drafts were not tested with media",
        "its text alone, with --language-model-only",
    ),
    Rule(
        "--model",
        OWN,
        lambda facts: f"{_shown(facts.target)}, which has M-RoPE positions" * facts.target.has_mrope,
        "drafts were not tested with it",
        "models without M-RoPE",
    ),
    Rule(
        "--pipeline-parallel-size",
        OWN,
        _above_one("pipeline_parallel_size"),
        "drafts were not tested across pipeline stages",
        "1, with --tensor-parallel-size or --data-parallel-size",
    ),
    Rule(
        "--pipeline-parallel-size",
        DRAFTER_PASSES,
        _late_drafts,
        "with synchronous scheduling drafts come while the next step is under way, and none would be used",
        "1, or asynchronous scheduling",
    ),
    Rule(
        "--decode-context-parallel-size",
        OWN,
        _above_one("decode_context_parallel_size"),
        "drafts were not tested with a KV cache that is split over ranks",
        "1",
    ),
    Rule(
        "--prefill-context-parallel-size",
        OWN,
        _above_one("prefill_context_parallel_size"),
        "vLLM's model runner for drafts does not support it",
        "1",
    ),
    Rule(
        "--enable-dbo",
        OWN,
        lambda facts: "micro-batched steps" if facts.server.splits_batches else "",
        "drafts were not tested with it",
        "no --enable-dbo and no --ubatch-size",
    ),
    Rule(
        "--kv-sharing-fast-prefill",
        OWN,
        lambda facts: "layers that skip prompts" if facts.server.has_fast_prefill else "",
        "drafts were not tested with it",
        "no --kv-sharing-fast-prefill",
    ),
    Rule(
        "--kv-transfer-config",
        OWN,
        _untested_connector,
        "drafts were not tested with it",
        f"no KV connector, or {' or '.join(TESTED_CONNECTORS)}",
    ),
    Rule(
        "--kv-transfer-config",
        DRAFT_MODELS,
        lambda facts: facts.server.kv_connector,
        "it stores and loads the target's keys and values only",
        "no KV connector",
    ),
    Rule(
        "--kv-transfer-config",
        BESIDE_VLLM,
        lambda facts: facts.server.kv_connector,
        "drafts were not tested with it",
        "no KV connector",
    ),
    Rule(
        "--logits-processors",
        OWN,
        lambda facts: ", ".join(facts.server.logits_processors),
        "custom logits processors cannot be applied at draft positions",
        "none, and no installed package that registers one (entry point vllm.logits_processors)",
    ),
    Rule(
        "proposer.model",
        DRAFT_MODELS,
        _draft_has(Layer.RECURRENT),
        "such state cannot be rolled back when drafts are rejected",
        SERVED_LAYERS,
    ),
    Rule(
        "proposer.model",
        DRAFT_MODELS,
        _draft_has(Layer.MLA),
        "its drafts are not accepted: its KV cache has another layout",
        SERVED_LAYERS,
    ),
    Rule(
        "proposer.model",
        DRAFT_MODELS,
        lambda facts: _untested_layers(facts.draft),
        "draft models were not tested with it",
        SERVED_LAYERS,
    ),
    Rule(
        "proposer.model",
        DRAFT_MODELS,
        lambda facts: _not_generating(facts.draft),
        "it cannot draft",
        "decoder-only models that generate text",
    ),
    Rule(
        "proposer.proposers",
        GRAMMARS_IN_WORKERS,
        lambda facts: "grammar, before a method that drafts in the worker",
        "only the scheduler's process has the grammars, and on the V1 runner all of this cascade drafts in the worker",
        "grammar with token-only methods, such as suffix, or before method vllm; on the V2 runner also before medusa "
        "or draft_model",
    ),
    Rule(
        "--data-parallel-size",
        OWN,
        lambda facts: _shared_experts(facts, facts.target),
        "replicas share experts in every pass; drafts were not tested with it, as vLLM's CPU build cannot run it",
        "1, or models without experts",
    ),
    Rule(
        "--data-parallel-size",
        DRAFT_MODELS,
        lambda facts: _shared_experts(facts, facts.draft),
        "replicas share experts in every pass, and only some would run the draft model",
        "1, or models without experts",
    ),
    Rule(
        "--enable-eplb",
        DRAFT_MODELS,
        lambda facts: _with_experts(facts.draft) if facts.server.moves_experts else "",
        "a draft model's experts are not rebalanced",
        "no --enable-eplb and no --enable-elastic-ep, or a draft model without experts",
    ),
    Rule(
        "--model",
        TREES,
        _target_has(Layer.SLIDING),
        "branches were not tested with it",
        "models whose layers are all full attention",
    ),
    Rule(
        "--model",
        TREES,
        lambda facts: (
            f"{_shown(facts.target)}, which has bidirectional attention for images" * facts.target.attends_both_ways
        ),
        "branches attend causally",
        "causal models",
    ),
    Rule(
        "--kv-transfer-config",
        TREES,
        lambda facts: facts.server.kv_connector,
        "a KV connector keeps its own block tables",
        "no KV connector",
    ),
    Rule(
        "--compilation-config",
        TREES,
        lambda facts: "full CUDA graphs" if facts.server.full_cuda_graphs else "",
        "they capture the step's number of sequences",
        "cudagraph_mode PIECEWISE, or --enforce-eager",
    ),
    Rule(
        "--compilation-config",
        TREES,
        lambda facts: "CUDA graphs that hold vllm::unified_kv_cache_update" if facts.server.captures_kv_writes else "",
        "keys and values that branches share would not be written to their blocks",
        "vLLM's own splitting_ops without use_inductor_graph_partition, or --enforce-eager",
    ),
    Rule(
        "--compilation-config",
        TREES,
        lambda facts: f"the passes {', '.join(facts.server.fused_kv_writes)}" if facts.server.fused_kv_writes else "",
        "keys and values that branches share would not be written to their blocks",
        "pass_config with these passes set to false",
    ),
    Rule(
        "--attention-backend",
        TREES,
        lambda facts: ", ".join(facts.server.backends_that_write),
        "it writes keys and values during attention, so branches cannot share them",
        "a backend with a separate KV cache update",
    ),
    Rule(
        "--model",
        TREES,
        lambda facts: f"layers such as {facts.server.other_layers[0]}" if facts.server.other_layers else "",
        "they do not write keys and values by vLLM's common call, so branches cannot share them",
        "models with vLLM's standard attention layers",
    ),
    Rule(
        "--model",
        TREES,
        lambda facts: f"{facts.server.num_kv_groups} KV cache groups" if facts.server.num_kv_groups != 1 else "",
        "branches were tested with one block table per request",
        "models whose layers are all full attention",
    ),
    Rule(
        "--block-size",
        TREES,
        lambda facts: str(facts.server.split_block_size or ""),
        "the attention backend splits blocks of this size",
        "a block size that the attention backend does not split",
    ),
)
