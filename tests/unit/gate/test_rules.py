"""Tests the refusals of the start-up gate, rule by rule, and their messages."""

from dataclasses import replace

import pytest

from vllm_spec_plugin.compat.model_facts import Facts, Layer, ModelFacts, ServerFacts
from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.gate.refusals import check, refusals
from vllm_spec_plugin.gate.rules import RULES, TESTED_CONNECTORS
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
from vllm_spec_plugin.gate.ways import Part, Way, way_of
from vllm_spec_plugin.schema.errors import ConfigError

TARGET = ModelFacts("/models/target", "LlamaForCausalLM")
DRAFT = ModelFacts("/models/draft", "Qwen3ForCausalLM")
PARTS = frozenset(Part)


def target(*layers, **changes):
    return Facts(replace(TARGET, layers=frozenset(layers or {Layer.FULL}), **changes))


def draft(*layers, **changes):
    return Facts(TARGET, replace(DRAFT, layers=frozenset(layers or {Layer.FULL}), **changes))


def server(**changes):
    return Facts(TARGET, DRAFT, ServerFacts(**changes))


def on_cpu(layer):
    return replace(target(layer), server=ServerFacts(on_cpu=True))


# Per rule: facts that it refuses, its scope, and what the message must say.
CASES = [
    (Facts(TARGET), GRAMMARS_IN_WORKERS, "proposer.proposers: got grammar, before a method that drafts in the worker"),
    (on_cpu(Layer.RECURRENT), BY_VLLM, "which has recurrent state; vLLM computes recurrent state wrongly"),
    (on_cpu(Layer.MLA), BY_VLLM, "(MLA); vLLM computes different logits when it verifies drafts on a CPU"),
    (target(Layer.FULL, Layer.RECURRENT), OWN, "--model: got '/models/target' (LlamaForCausalLM), which has recur"),
    (target(Layer.MLA), OWN, "--model: got '/models/target' (LlamaForCausalLM), which has multi-head latent"),
    (target(Layer.FULL, Layer.CHUNKED), OWN, "which has chunked local attention; drafts were not tested with it"),
    (target("ring attention"), OWN, "which has ring attention; drafts were not tested with it"),
    (target(generates=False), OWN, "--model: got '/models/target' (LlamaForCausalLM), which does not generate"),
    (target(takes_media=True), OWN, "which takes images or other media; drafts were not tested with media"),
    (server(pipeline_parallel_size=2), OWN, "--pipeline-parallel-size: got 2; "),
    (server(pipeline_parallel_size=2), DRAFTER_PASSES, "--pipeline-parallel-size: got 2; with synchronous"),
    (server(decode_context_parallel_size=2), OWN, "--decode-context-parallel-size: got 2; "),
    (server(prefill_context_parallel_size=4), OWN, "--prefill-context-parallel-size: got 4; "),
    (server(splits_batches=True), OWN, "--enable-dbo: got micro-batched steps"),
    (server(has_fast_prefill=True), OWN, "--kv-sharing-fast-prefill: got layers that skip prompts"),
    (server(logits_processors=("mine.Own",)), OWN, "--logits-processors: got mine.Own; "),
    (
        draft(Layer.RECURRENT),
        DRAFT_MODELS,
        "proposer.model: got '/models/draft' (Qwen3ForCausalLM), which has recurrent",
    ),
    (
        draft(Layer.MLA),
        DRAFT_MODELS,
        "proposer.model: got '/models/draft' (Qwen3ForCausalLM), which has multi-head latent",
    ),
    (draft("ring attention"), DRAFT_MODELS, "proposer.model: got '/models/draft' (Qwen3ForCausalLM), which has ring"),
    (draft(generates=False), DRAFT_MODELS, "proposer.model: got '/models/draft' (Qwen3ForCausalLM), which does not"),
    (
        Facts(replace(TARGET, is_moe=True), None, ServerFacts(data_parallel_size=2)),
        OWN,
        "--data-parallel-size: got 2 with '/models/target'",
    ),
    (
        replace(draft(is_moe=True), server=ServerFacts(data_parallel_size=2)),
        DRAFT_MODELS,
        "--data-parallel-size: got 2 with",
    ),
    (
        replace(draft(is_moe=True), server=ServerFacts(moves_experts=True)),
        DRAFT_MODELS,
        "--enable-eplb: got '/models/draft'",
    ),
    (target(Layer.FULL, Layer.SLIDING), TREES, "which has sliding-window attention; branches were not tested with it"),
    (target(has_mrope=True), OWN, "which has M-RoPE positions"),
    (target(attends_both_ways=True), TREES, "which has bidirectional attention for images"),
    (server(kv_connector="NixlConnector"), OWN, "--kv-transfer-config: got NixlConnector; drafts were not tested"),
    (server(kv_connector="ExampleConnector"), DRAFT_MODELS, "--kv-transfer-config: got ExampleConnector; it stores"),
    (server(kv_connector="ExampleConnector"), TREES, "--kv-transfer-config: got ExampleConnector; a KV connector"),
    (
        server(kv_connector="ExampleConnector"),
        BESIDE_VLLM,
        "--kv-transfer-config: got ExampleConnector; drafts were not",
    ),
    (server(full_cuda_graphs=True), TREES, "--compilation-config: got full CUDA graphs; "),
    (server(captures_kv_writes=True), TREES, "--compilation-config: got CUDA graphs that hold vllm::unified_kv_cache"),
    (server(fused_kv_writes=("fuse_rope_kvcache",)), TREES, "--compilation-config: got the passes fuse_rope_kvcache; "),
    (server(backends_that_write=("HPC_ATTN",)), TREES, "--attention-backend: got HPC_ATTN; "),
    (server(other_layers=("model.layers.0.attn",)), TREES, "--model: got layers such as model.layers.0.attn; "),
    (server(num_kv_groups=2), TREES, "--model: got 2 KV cache groups; "),
    (server(split_block_size=48), TREES, "--block-size: got 48; "),
]


@pytest.mark.parametrize(("facts", "scope", "said"), CASES)
@pytest.mark.parametrize("way", Way)
def test_each_way_in_its_scope_is_refused_by_name_and_no_other(facts: Facts, scope: Scope, said: str, way: Way) -> None:
    texts = [str(refusal) for refusal in refusals(way, PARTS, facts) if refusal.rule.scope is scope]
    assert [said in text and "; allowed: " in text for text in texts] == [True] * (way in scope.ways)
    if scope.part is not None:
        assert not [each for each in refusals(way, PARTS - {scope.part}, facts) if each.rule.scope is scope]


def test_every_rule_has_a_case():
    found = {refusal.rule for facts, _, _ in CASES for way in Way for refusal in refusals(way, PARTS, facts)}
    assert found == set(RULES)


@pytest.mark.parametrize(
    "facts",
    [
        Facts(TARGET),
        Facts(TARGET, DRAFT),
        target(Layer.FULL, Layer.SLIDING, is_moe=True, attends_both_ways=True),
        draft(Layer.FULL, Layer.SLIDING, is_moe=True),
        Facts(TARGET, DRAFT, ServerFacts(data_parallel_size=2)),
        server(full_cuda_graphs=True, captures_kv_writes=True),
    ],
)
def test_everything_else_is_served_with_chains(facts):
    assert refusals(Way.OWN, PARTS - {Part.TREES, Part.GRAMMAR}, facts) == []


def test_tested_connectors_are_served_with_chains_and_with_vllms_drafters_alone():
    served = {Way.OWN, Way.TOKEN_ONLY_V1, Way.VLLM_V1, Way.VLLM_V2, Way.VLLM_ASYNC}
    for name in TESTED_CONNECTORS:
        facts = server(kv_connector=name, is_asynchronous=True)
        assert {way for way in Way if not refusals(way, frozenset(), facts)} == served


NGRAM, HEADS = {"method": "ngram"}, {"method": "medusa", "model": "m"}
VLLM = {"method": "vllm", "config": {"method": "mtp"}}


@pytest.mark.parametrize(
    ("proposer", "ways"),
    [
        (NGRAM, [Way.TOKEN_ONLY_V1, Way.TOKEN_ONLY, Way.TOKEN_ONLY]),
        (HEADS, [Way.OWN, Way.HEADS, Way.HEADS_ASYNC]),
        (VLLM, [Way.VLLM_V1, Way.VLLM_V2, Way.VLLM_ASYNC]),
        ([NGRAM, HEADS], [Way.OWN, Way.TOKEN_ONLY_HEADS, Way.TOKEN_ONLY_HEADS]),
        ([NGRAM, VLLM], [Way.TOKEN_ONLY_VLLM_V1, Way.TOKEN_ONLY_VLLM_V2, Way.TOKEN_ONLY_VLLM_V2]),
    ],
)
def test_the_way_follows_from_proposers_runner_and_scheduling(proposer, ways):
    section = proposer if isinstance(proposer, dict) else {"method": "cascade", "proposers": proposer}
    config = parse_config({"proposer": section}, "plugin.yaml")
    engines = [
        {"is_v2": False, "is_async": False},
        {"is_v2": True, "is_async": False},
        {"is_v2": True, "is_async": True},
    ]
    assert [way_of(config, **engine) for engine in engines] == ways


def test_several_reasons_are_listed():
    with pytest.raises(ConfigError) as caught:
        check(
            Way.OWN,
            frozenset(),
            replace(target(Layer.MLA), server=ServerFacts(pipeline_parallel_size=2)),
            "plugin.yaml",
        )
    first, *rest = str(caught.value).splitlines()
    assert first == "plugin.yaml cannot be served here, for 2 reasons:"
    assert [line.split(":")[0] for line in rest] == ["  --model", "  --pipeline-parallel-size"]


@pytest.mark.parametrize("layer", [Layer.RECURRENT, Layer.MLA, Layer.CHUNKED])
def test_vllms_own_drafters_are_served_wherever_vllm_is_right(layer):
    facts = target(layer, takes_media=True, has_mrope=True)
    server = ServerFacts(pipeline_parallel_size=2, kv_connector="Nixl", is_asynchronous=True)
    assert not refusals(Way.VLLM_ASYNC, frozenset(), replace(facts, server=server))
