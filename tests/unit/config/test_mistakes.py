"""Mistakes in a configuration, and the words they are refused with."""

from typing import Any

import pytest
import yaml

from tests.unit.config.cases import MEDUSA, NGRAM, message_of
from vllm_spec_plugin.proposers import registry

MEMBERS = ", ".join([*sorted(map(registry.method_of, registry.BUNDLED)), "vllm"])
METHODS = f"cascade, {MEMBERS}"
# What a file says, in one line, and below it the message, in which METHODS and MEMBERS stand for these.
MISTAKES = """
proposer: {method: ngram, min_order: 99}
    proposer.min_order: got 99; allowed: a whole number from 1 to 16
proposer: {method: ngarm}
    proposer.method: got the text 'ngarm'; allowed: METHODS; did you mean ngram?
proposer: {}
    proposer.method: missing; allowed: METHODS
proposer: {method: ngram, min_ordr: 3}
    proposer.min_ordr: unknown key (got 3); allowed: method, min_order, shared, shared_tokens,
    shared_scope; did you mean min_order?
proposer: {method: ngram}, draft_length: {policy: best}
    draft_length.policy: got the text 'best'; allowed: fixed, optimal, random
proposer: {method: ngram}, draft_length: {tokns: 8}
    draft_length.tokns: unknown key (got 8); allowed: tokens, policy, half_life; did you mean tokens?
proposer: {method: ngram}, tokens: 3
    tokens: unknown key (got 3); allowed: proposer, draft_length, verification, stream_granularity, stream_tokens;
    did you mean draft_length.tokens?
proposer: {method: ngram}, verification: null
    verification: got nothing (null); allowed: a section with the keys lenience, method
proposer: {method: ngram}, verification: {7: 1}
    verification.7: got 7 as a key; allowed: lenience, method
{}
    proposer: missing; allowed: a section with the key method (cascade or draft_model or eagle3 or grammar or
    medusa or ngram or prediction or suffix or vllm) and the keys of that choice
null
    it is empty; allowed: a YAML mapping with the keys proposer, draft_length, verification, stream_granularity,
    stream_tokens (proposer is required)
[1]
    got a list; allowed: a YAML mapping with the keys proposer, draft_length, verification, stream_granularity,
    stream_tokens (proposer is required)
proposer: {method: ngram}, stream_granularity: fix
    stream_granularity: got the text 'fix'; allowed: free, token, fixed; did you mean fixed?
proposer: {method: ngram}, stream_tokens: 8
    stream_tokens: got 8, but stream_granularity is free, so tokens are not grouped; allowed: leave it out, or set
    stream_granularity to fixed
proposer: {method: ngram}, stream_granularity: fixed, stream_tokens: null
    stream_tokens: got nothing (null), but stream_granularity is fixed; allowed: a whole number from 5 to 1024, or
    leave it out for 5
proposer: {method: ngram}, stream_granularity: fixed, stream_tokens: 4
    stream_tokens: got 4, but with draft_length.tokens 4 a step may output 5 tokens; allowed: a whole number from 5
    to 1024, or leave it out for 5
proposer: {method: ngram}, stream_granularity: fixed, stream_tokens: 1025
    stream_tokens: got 1025; allowed: a whole number from draft_length.tokens + 1 to 1024
proposer: {method: ngram, shared: 'yes'}
    proposer.shared: got the text 'yes'; allowed: true or false
proposer: {method: ngram, shared: true, shared_tokens: 1023}
    proposer.shared_tokens: got 1023; allowed: a whole number from 1024 to 1000000000
proposer: {method: ngram, shared_tokens: 5000}
    proposer.shared_tokens: got 5000, but proposer.shared is false, so no text is kept; allowed: leave it out,
    or set proposer.shared to true
proposer: {method: ngram, shared: true, shared_tokens: null}
    proposer.shared_tokens: got nothing (null), but proposer.shared is true; allowed: a whole number from 1024 to
    1000000000, or leave it out for 1000000
proposer: {method: draft_model}
    proposer.model: missing; allowed: a model's folder or its name on the Hugging Face hub
proposer: {method: draft_model, model: ''}
    proposer.model: got the text ''; allowed: a model's folder or its name on the Hugging Face hub
proposer: {method: draft_model, model: org/small, min_order: 3}
    proposer.min_order: unknown key (got 3); allowed: method, model, draft_sampling, dtype,
    quantization, revision, code_revision, max_model_len, catch_up_tokens; it
    belongs to proposer.method ngram and suffix
proposer: {method: ngram, model: x}
    proposer.model: unknown key (got the text 'x'); allowed: method, min_order, shared,
    shared_tokens, shared_scope; it belongs to proposer.method draft_model and eagle3
    and medusa
proposer: {method: draft_model, model: org/small, tokens: 3}
    proposer.tokens: unknown key (got 3); allowed: method, model, draft_sampling, dtype,
    quantization, revision, code_revision, max_model_len, catch_up_tokens; did you mean draft_length.tokens?
proposer: {method: draft_model, model: org/small, draft_sampling: sample}
    proposer.draft_sampling: got the text 'sample'; allowed: probabilistic, greedy, shared,
    or null; did you mean shared?
proposer: {method: cascade, proposers: [{method: eagle3, model: org/head}, {method: draft_model, model: org/small}]}
    proposer.proposers[1].method: got a second method that keeps a KV cache; allowed: one such method
proposer: {method: draft_model, model: org/small, dtype: fp16}
    proposer.dtype: got the text 'fp16'; allowed: auto, float32, float16, bfloat16, or null; did you mean float16?
proposer: {method: draft_model, model: org/small, quantization: ''}
    proposer.quantization: got the text ''; allowed: a name that vLLM's --quantization takes, or null
proposer: {method: draft_model, model: org/small, catch_up_tokens: 0}
    proposer.catch_up_tokens: got 0; allowed: a whole number from 1 up
proposer: {method: medusa, model: org/heads, tree: auto}, verification: {lenience: 0.9}
    verification.lenience: got 0.9, but the proposer drafts trees, which are verified exactly; allowed: 1
proposer: {method: ngram}, verification: {lenience: 0.9, method: block}
    verification.method: got block, but verification.lenience is 0.9; allowed: token, or lenience 1
proposer: {method: medusa, model: org/heads, tree: [[0], [1, 0]]}
    proposer.tree: path [1, 0] has no parent; allowed: add [1], or leave it out
proposer: {method: medusa, model: org/heads, tree: [[0], [1], [0]]}
    proposer.tree: path [0] occurs twice; allowed: each path once
proposer: {method: medusa}
    proposer.model: missing; allowed: a folder of Medusa heads or its name on the Hugging Face hub
proposer: {method: cascade, proposers: [{method: ngram}, {method: ngram}, {method: ngram}, {method: ngram}]}
    proposer.proposers: got a list of 4; allowed: a list of 2 to 3 proposers, each with its method
proposer: {method: cascade, proposers: {method: ngram}}
    proposer.proposers: got a section; allowed: a list of 2 to 3 proposers, each with its method
proposer: {method: cascade, proposers: [{method: ngram}, {method: ngrm}]}
    proposer.proposers[1].method: got the text 'ngrm'; allowed: MEMBERS; did you mean ngram?
proposer: {method: cascade, proposers: [{method: ngram}, {method: cascade, proposers: []}]}
    proposer.proposers[1].method: got the text 'cascade'; allowed: MEMBERS
proposer: {method: cascade, proposers: [{method: ngram}, {method: ngram}]}
    proposer.proposers[1].method: got the text 'ngram' a second time; allowed: each method once
proposer: {method: cascade, proposers: [{method: vllm, config: {method: mtp}}, {method: ngram}]}
    proposer.proposers[1].method: got the text 'ngram' after vllm; allowed: vllm as the last method
proposer: {method: cascade, proposers: [{method: draft_model, model: x}, {method: vllm, config: {method: mtp}}]}
    proposer.proposers[0].method: got the text 'draft_model'; allowed before vllm: token-only methods, such as suffix
proposer: {method: cascade, proposers: [method: ngram, {method: vllm, config: {model: x, draft_sample_method: drawn}}]}
    proposer.proposers[1].config.draft_sample_method: got the text 'drawn', but the drafts of the methods before vllm
    are certain; allowed: greedy
proposer: {method: vllm, config: {method: mtp, rejection_sample_method: synthetic, synthetic_acceptance_length: 3}}
    proposer.config.rejection_sample_method: got the text 'synthetic', which changes the distribution of outputs;
    allowed: standard or block
proposer: {method: vllm, config: {method: mtp, rejection_sample_method: block}}, verification: {method: token}
    verification.method: got token, but proposer.config.rejection_sample_method is the text 'block'; allowed: one of
    the two
proposer: {method: vllm, config: {model: x, draft_sample_method: probabilistic}}, verification: {method: coupled}
    verification.method: got coupled, but proposer.config.draft_sample_method is the text 'probabilistic'; allowed:
    block or token, or leave that key out
proposer: {method: ngram}, verification: {lenience: 0.9, method: coupled}
    verification.method: got coupled, but verification.lenience is 0.9; allowed: token, or lenience 1
proposer: {method: vllm, config: {method: mtp, rejection_sample_method: fly}}
    proposer.config.rejection_sample_method: got the text 'fly', which changes the distribution of outputs; allowed:
    standard or block
proposer: {method: cascade, proposers: [{method: ngram, tree: null}, {method: medusa, model: org/heads}]}
    proposer.proposers[0].tree: unknown key (got nothing (null)); allowed: method, min_order,
    shared, shared_tokens, shared_scope; it belongs to proposer.proposers[0].method medusa
proposer: {method: cascade, proposers: [{method: ngram, shared_tokens: 5000}, {method: medusa, model: org/heads}]}
    proposer.proposers[0].shared_tokens: got 5000, but proposer.proposers[0].shared is false, so no text is kept;
    allowed: leave it out, or set proposer.proposers[0].shared to true
"""


def mistakes() -> list[tuple[object, str]]:
    """Data of a file and what is said of it."""
    cases: list[tuple[object, str]] = []
    for line in MISTAKES.strip().splitlines():
        if line.startswith(" "):
            data, message = cases.pop()
            said = line.strip().replace("METHODS", METHODS).replace("MEMBERS", MEMBERS)
            cases.append((data, f"{message} {said}".strip()))
        else:
            cases.append((yaml.safe_load(line if line[0] in "{[n" else f"{{{line}}}"), ""))
    return cases


@pytest.mark.parametrize(("data", "message"), mistakes())
def test_one_mistake_is_one_line(data: object, message: str) -> None:
    assert message_of(data) == f"spec.yaml: {message}"


@pytest.mark.parametrize(
    ("value", "at", "allowed"),
    [
        ([[]], "tree[0]", "a list of 1 to 16 whole numbers from 0 to 63"),
        ([0], "tree[0]", "a list of 1 to 16 whole numbers from 0 to 63"),
        ([[0], [0, -1]], "tree[1][1]", "a whole number from 0 to 63"),
        ([[64]], "tree[0][0]", "a whole number from 0 to 63"),
        ([[0] * 17], "tree[0]", "a list of 1 to 16 whole numbers from 0 to 63"),
    ],
)
def test_a_wrong_element_of_a_path_is_named(value: object, at: str, allowed: str) -> None:
    message = message_of({"proposer": {**MEDUSA, "tree": value}})
    assert message.startswith(f"spec.yaml: proposer.{at}: got ")
    assert message.endswith(f"; allowed: {allowed}")


@pytest.mark.parametrize(
    ("data", "section", "key", "allowed", "values"),
    [
        (
            {"proposer": MEDUSA}, "proposer", "tree",
            "auto, null, or a list of paths such as [[0], [1], [0, 0]]: each a list of 1 to 16 ranks from 0 to 63",
            ([], 3, "best", True, {"a": 1}),
        ),
        (
            {"proposer": NGRAM, "draft_length": {"policy": "fixed"}}, "draft_length", "tokens",
            "a whole number from 1 to 64", (0, 65, -1, 4.0, "4", None),
        ),
        (
            {"proposer": NGRAM}, "verification", "lenience", "a number above 0 up to 1",
            (0, 0.0, -0.5, 1.01, 2, float("nan"), float("inf"), True, "1.0", 10**400),
        ),
        ({"proposer": NGRAM}, "verification", "method", "coupled, block, token, or null", ("blocks", "", True, 1)),
    ],
    ids=["tree", "tokens", "lenience", "method"],
)  # fmt: skip
def test_values_out_of_range_are_refused(
    data: dict[str, Any], section: str, key: str, allowed: str, values: tuple[object, ...]
) -> None:
    for value in values:
        message = message_of({**data, section: {**data.get(section, {}), key: value}})
        assert message.startswith(f"spec.yaml: {section}.{key}: got ")
        assert f"; allowed: {allowed}" in message


def test_all_mistakes_are_listed_even_under_an_unknown_method() -> None:
    data = {"proposer": {"method": "ngrm", "shared": 3, "min_order": 0}, "verification": {"lenience": 2}}
    lines = message_of(data).splitlines()
    assert lines[0] == "spec.yaml: 4 mistakes:"
    assert {line.split(":")[0].strip() for line in lines[1:]} == {
        "proposer.method",
        "proposer.shared",
        "proposer.min_order",
        "verification.lenience",
    }


@pytest.mark.parametrize(
    ("proposer", "keys"),
    [
        # A slip of the pen: its keys are checked as those of the method meant.
        ({"method": "draftmodel"}, ["method", "model"]),
        ({"method": "draftmodel", "model": "x", "window": 9}, ["method", "window"]),
        # Another method or none: keys are checked as those of the method most of them belong to ...
        ({"method": "hydra", "model": 3, "dtype": "float16"}, ["method", "model"]),
        ({"method": "hydra", "model": 3, "tree": "auto"}, ["method", "model"]),
        ({"model": "x", "dtype": "bad"}, ["method", "dtype"]),
        ({"method": "hydra", "min_probability": 2}, ["method", "min_probability"]),
        # ... or, where that is none or more than one, not at all.
        ({"method": "hydra", "heads": 5}, ["method"]),
        ({"method": "hydra", "model": 3, "heads": 5}, ["method"]),
        ({"draft_sampling": "sample"}, ["method"]),
    ],
)
def test_under_an_unknown_method_only_what_is_certainly_wrong_is_listed(
    proposer: dict[str, Any], keys: list[str]
) -> None:
    lines = message_of({"proposer": proposer}).removeprefix("spec.yaml: ").splitlines()
    mistakes = lines[1:] if len(lines) > 1 else lines
    assert [line.split(":")[0].strip() for line in mistakes] == [f"proposer.{key}" for key in keys]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {"method": "mtp", "num_speculative_tokens": 3},
            "proposer.config.num_speculative_tokens: got 3, but draft_length",
        ),
        (
            {"method": "mtp", "enable_adaptive_verification": True},
            "proposer.config.enable_adaptive_verification: got true",
        ),
        ({"method": "custom_class", "model": "a.B"}, "proposer.config.method: got the text 'custom_class'; allowed:"),
        ({}, "proposer.config: got neither method nor model"),
        ("eagle3", "proposer.config: got the text 'eagle3'; allowed: a speculative config for vLLM"),
    ],
)
def test_keys_of_vllms_that_the_plugin_sets_are_refused(config: object, expected: str) -> None:
    assert expected in message_of({"proposer": {"method": "vllm", "config": config}})


def test_vllm_verifies_what_it_drafts() -> None:
    data = {"proposer": {"method": "vllm", "config": {"method": "mtp"}}, "verification": {"lenience": 0.9}}
    assert "verification.lenience: got 0.9, but vLLM's drafters are verified exactly; allowed: 1" in message_of(data)
