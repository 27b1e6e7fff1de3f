"""Tests the refusals of the start-up gate, rule by rule, and their messages."""

from dataclasses import replace

import pytest

from vllm_spec_plugin.compat.model_facts import Facts, Layer, ModelFacts, ServerFacts
from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.schema.errors import ConfigError
from vllm_spec_plugin.support.refusals import check, features_of, refusals
from vllm_spec_plugin.support.rules import DRAFTER_PASSES, EVERYTHING, NATIVE, RULES, TESTED_CONNECTORS, Feature

TARGET = ModelFacts("/models/target", "LlamaForCausalLM")
DRAFT = ModelFacts("/models/draft", "Qwen3ForCausalLM")
CHAINS = frozenset({Feature.CHAIN, Feature.NO_DRAFTS})
DRAFTED = CHAINS | {Feature.DRAFT_MODEL}
TREES = CHAINS | {Feature.TREE}


def target(*layers, **changes):
    return Facts(replace(TARGET, layers=frozenset(layers or {Layer.FULL}), **changes))


def draft(*layers, **changes):
    return Facts(TARGET, replace(DRAFT, layers=frozenset(layers or {Layer.FULL}), **changes))


def server(**changes):
    return Facts(TARGET, DRAFT, ServerFacts(**changes))


def on_cpu(layer):
    return replace(target(layer), server=ServerFacts(on_cpu=True))


# Per rule: facts that it refuses, the features that it refuses, and what the message must say.
CASES = [
    (on_cpu(Layer.RECURRENT), NATIVE, "which has recurrent state; vLLM computes recurrent state wrongly"),
    (server(reuses_noise=True), NATIVE, "proposer.config.rejection_sample_method: got block; vLLM 0.32's V2 runner"),
    (on_cpu(Layer.MLA), NATIVE, "(MLA); vLLM computes different logits when it verifies drafts on a CPU"),
    (target(Layer.FULL, Layer.RECURRENT), CHAINS, "--model: got '/models/target' (LlamaForCausalLM), which has recur"),
    (target(Layer.MLA), CHAINS, "--model: got '/models/target' (LlamaForCausalLM), which has multi-head latent"),
    (target(Layer.FULL, Layer.CHUNKED), CHAINS, "which has chunked local attention; drafts were not tested with it"),
    (target("ring attention"), CHAINS, "which has ring attention; drafts were not tested with it"),
    (target(generates=False), CHAINS, "--model: got '/models/target' (LlamaForCausalLM), which does not generate"),
    (target(takes_media=True), CHAINS, "which takes images or other media; drafts were not tested with media"),
    (server(pipeline_parallel_size=2), CHAINS, "--pipeline-parallel-size: got 2; "),
    (server(pipeline_parallel_size=2), NATIVE | DRAFTER_PASSES, "--pipeline-parallel-size: got 2; with synchronous"),
    (server(decode_context_parallel_size=2), CHAINS, "--decode-context-parallel-size: got 2; "),
    (server(prefill_context_parallel_size=4), CHAINS, "--prefill-context-parallel-size: got 4; "),
    (server(splits_batches=True), CHAINS, "--enable-dbo: got micro-batched steps"),
    (server(has_fast_prefill=True), CHAINS, "--kv-sharing-fast-prefill: got layers that skip prompts"),
    (server(logits_processors=("mine.Own",)), CHAINS, "--logits-processors: got mine.Own; "),
    (draft(Layer.RECURRENT), DRAFTED, "proposer.model: got '/models/draft' (Qwen3ForCausalLM), which has recurrent"),
    (draft(Layer.MLA), DRAFTED, "proposer.model: got '/models/draft' (Qwen3ForCausalLM), which has multi-head latent"),
    (draft("ring attention"), DRAFTED, "proposer.model: got '/models/draft' (Qwen3ForCausalLM), which has ring"),
    (draft(generates=False), DRAFTED, "proposer.model: got '/models/draft' (Qwen3ForCausalLM), which does not"),
    (
        Facts(replace(TARGET, is_moe=True), None, ServerFacts(data_parallel_size=2)),
        CHAINS,
        "--data-parallel-size: got 2 with '/models/target'",
    ),
    (
        replace(draft(is_moe=True), server=ServerFacts(data_parallel_size=2)),
        DRAFTED,
        "--data-parallel-size: got 2 with",
    ),
    (
        replace(draft(is_moe=True), server=ServerFacts(moves_experts=True)),
        DRAFTED,
        "--enable-eplb: got '/models/draft'",
    ),
    (target(Layer.FULL, Layer.SLIDING), TREES, "which has sliding-window attention; branches were not tested with it"),
    (target(has_mrope=True), CHAINS, "which has M-RoPE positions"),
    (target(attends_both_ways=True), TREES, "which has bidirectional attention for images"),
    (server(kv_connector="NixlConnector"), CHAINS, "--kv-transfer-config: got NixlConnector; drafts were not tested"),
    (server(kv_connector="ExampleConnector"), TREES, "--kv-transfer-config: got ExampleConnector; a KV connector"),
    (server(full_cuda_graphs=True), TREES, "--compilation-config: got full CUDA graphs; "),
    (server(captures_kv_writes=True), TREES, "--compilation-config: got CUDA graphs that hold vllm::unified_kv_cache"),
    (server(fused_kv_writes=("fuse_rope_kvcache",)), TREES, "--compilation-config: got the passes fuse_rope_kvcache; "),
    (server(backends_that_write=("HPC_ATTN",)), TREES, "--attention-backend: got HPC_ATTN; "),
    (server(other_layers=("model.layers.0.attn",)), TREES, "--model: got layers such as model.layers.0.attn; "),
    (server(num_kv_groups=2), TREES, "--model: got 2 KV cache groups; "),
    (server(split_block_size=48), TREES, "--block-size: got 48; "),
]


@pytest.mark.parametrize(("facts", "features", "said"), CASES)
def test_what_is_in_the_way_is_refused_by_name(facts, features, said):
    [refusal] = refusals(features, facts)
    assert said in str(refusal)
    assert "; allowed: " in str(refusal)
    # Nothing else is refused: the rule is not for features that are served.
    assert refusals(features - refusal.rule.features, facts) == []


def test_every_rule_has_a_case():
    found = {refusal.rule for facts, _, _ in CASES for refusal in refusals(frozenset(Feature), facts)}
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
    assert refusals(EVERYTHING - {Feature.TREE}, facts) == []


def test_tested_connectors_are_served_with_chains():
    for name in TESTED_CONNECTORS:
        assert refusals(EVERYTHING - {Feature.TREE}, server(kv_connector=name)) == []


@pytest.mark.parametrize(
    ("proposer", "more"),
    [
        ({"method": "ngram"}, set()),
        ({"method": "draft_model", "model": "d"}, {Feature.DRAFT_MODEL}),
        ({"method": "medusa", "model": "m"}, {Feature.HIDDEN_STATES}),
        ({"method": "medusa", "model": "m", "tree": [[0], [1]]}, {Feature.HIDDEN_STATES, Feature.TREE}),
        (
            {"method": "cascade", "proposers": [{"method": "ngram"}, {"method": "draft_model", "model": "d"}]},
            {Feature.DRAFT_MODEL},
        ),
    ],
)
def test_features_follow_from_the_proposers(proposer, more):
    assert features_of(parse_config({"proposer": proposer}, "plugin.yaml")) == CHAINS | more


def test_one_reason_is_one_line():
    with pytest.raises(ConfigError, match=r"^plugin\.yaml cannot be served here: --pipeline-parallel-size: got 2; .*$"):
        check(CHAINS, server(pipeline_parallel_size=2), "plugin.yaml")
    check(EVERYTHING, Facts(TARGET, DRAFT), "plugin.yaml")


def test_several_reasons_are_listed():
    with pytest.raises(ConfigError) as caught:
        check(CHAINS, replace(target(Layer.MLA), server=ServerFacts(pipeline_parallel_size=2)), "plugin.yaml")
    first, *rest = str(caught.value).splitlines()
    assert first == "plugin.yaml cannot be served here, for 2 reasons:"
    assert [line.split(":")[0] for line in rest] == ["  --model", "  --pipeline-parallel-size"]


@pytest.mark.parametrize("layer", [Layer.RECURRENT, Layer.MLA, Layer.CHUNKED])
def test_vllms_own_drafters_are_served_wherever_vllm_is_right(layer):
    config = parse_config({"proposer": {"method": "vllm", "config": {"method": "mtp"}}}, "x.yaml")
    assert features_of(config) == NATIVE
    facts = target(layer, takes_media=True, has_mrope=True)
    assert not refusals(NATIVE, replace(facts, server=ServerFacts(pipeline_parallel_size=2, kv_connector="Nixl")))
