"""A mistake in a configuration is one line that names its key, the value, and what is allowed."""

from typing import Any

import pytest
import yaml

from tests.unit.config.cases import message_of
from vllm_spec_plugin.proposers import registry

MEMBERS = ", ".join([*sorted(map(registry.method_of, registry.BUNDLED)), "vllm"])
# What a file says; the key that is named; and words of the message, if they follow from more than that key.
MISTAKES = """
proposer: {method: ngram, min_order: 99} -> proposer.min_order: 1 to 16
proposer: {method: ngram, min_order: 0} -> proposer.min_order
proposer: {method: ngarm} -> proposer.method: did you mean ngram?
proposer: {} -> proposer.method: cascade, MEMBERS
proposer: {method: ngram, min_ordr: 3} -> proposer.min_ordr: did you mean min_order?
proposer: {method: ngram}, draft_length: {policy: best} -> draft_length.policy: fixed, optimal, random
proposer: {method: ngram}, draft_length: {tokns: 8} -> draft_length.tokns: did you mean tokens?
proposer: {method: ngram}, draft_length: {tokens: 0} -> draft_length.tokens: 1 to 64
proposer: {method: ngram}, draft_length: {tokens: 65} -> draft_length.tokens
proposer: {method: ngram}, draft_length: {tokens: 4.0} -> draft_length.tokens
proposer: {method: ngram}, draft_length: {tokens: '4'} -> draft_length.tokens
proposer: {method: ngram}, draft_length: {tokens: null} -> draft_length.tokens
proposer: {method: ngram}, draft_length: {memory: 3} -> draft_length.memory: on, off, or a folder
proposer: {method: ngram}, tokens: 3 -> tokens: did you mean draft_length.tokens?
proposer: {method: ngram}, verification: null -> verification: a section with the keys lenience, method
proposer: {method: ngram}, verification: {7: 1} -> verification.7: lenience, method
proposer: {method: ngram}, verification: {method: blocks} -> verification.method: coupled, block, token, or null
proposer: {method: ngram}, verification: {method: true} -> verification.method
proposer: {method: ngram}, verification: {lenience: 0} -> verification.lenience: a number above 0 up to 1
proposer: {method: ngram}, verification: {lenience: -0.5} -> verification.lenience
proposer: {method: ngram}, verification: {lenience: 1.01} -> verification.lenience
proposer: {method: ngram}, verification: {lenience: .nan} -> verification.lenience
proposer: {method: ngram}, verification: {lenience: .inf} -> verification.lenience
proposer: {method: ngram}, verification: {lenience: true} -> verification.lenience
proposer: {method: ngram}, verification: {lenience: '1.0'} -> verification.lenience
{} -> proposer: a section with the key method
proposer: {method: ngram}, stream_granularity: fix -> stream_granularity: did you mean fixed?
proposer: {method: ngram}, stream_tokens: 8 -> stream_tokens: stream_granularity is free
proposer: {method: ngram}, stream_granularity: fixed, stream_tokens: null -> stream_tokens: 5 to 1024
proposer: {method: ngram}, stream_granularity: fixed, stream_tokens: 4 -> stream_tokens: a step may output 5 tokens
proposer: {method: ngram}, stream_granularity: fixed, stream_tokens: 1025 -> stream_tokens
proposer: {method: ngram}, switch: off -> switch: a section with the keys spec, spec_tokens
proposer: {method: ngram}, switch: {spec: no} -> switch.spec: on, off
proposer: {method: ngram}, switch: {spec: maybe} -> switch.spec: on, off
proposer: {method: ngram}, switch: {spec_token: 2} -> switch.spec_token: did you mean spec_tokens?
proposer: {method: ngram}, switch: {spec_tokens: 0} -> switch.spec_tokens: from 1 to 64, or null
proposer: {method: ngram}, switch: {spec_tokens: 5} -> switch.spec_tokens: draft_length.tokens is 4; allowed: a whole number from 1 to 4
proposer: {method: ngram}, requests: {spec_tokens: 9}, draft_length: {tokens: 8} -> requests.spec_tokens: draft_length.tokens is 8
proposer: {method: ngram, shared: 'yes'} -> proposer.shared: true or false
proposer: {method: ngram, shared: true, shared_tokens: 1023} -> proposer.shared_tokens: from 1024
proposer: {method: ngram, shared_tokens: 5000} -> proposer.shared_tokens: proposer.shared is false
proposer: {method: ngram, shared: true, shared_tokens: null} -> proposer.shared_tokens: proposer.shared is true
proposer: {method: draft_model} -> proposer.model: a model's folder or its name on the Hugging Face hub
proposer: {method: draft_model, model: ''} -> proposer.model
proposer: {method: draft_model, model: x, min_order: 3} -> proposer.min_order: belongs to proposer.method ngram and suffix
proposer: {method: draft_model, model: x, tokens: 3} -> proposer.tokens: did you mean draft_length.tokens?
proposer: {method: draft_model, model: x, draft_sampling: sample} -> proposer.draft_sampling: probabilistic, greedy, shared
proposer: {method: draft_model, model: x, dtype: fp16} -> proposer.dtype: did you mean float16?
proposer: {method: draft_model, model: x, quantization: ''} -> proposer.quantization
proposer: {method: draft_model, model: x, catch_up_tokens: 0} -> proposer.catch_up_tokens
proposer: {method: medusa} -> proposer.model: a folder of Medusa heads
proposer: {method: medusa, model: x, tree: []} -> proposer.tree: auto, null, or a list of paths
proposer: {method: medusa, model: x, tree: best} -> proposer.tree
proposer: {method: medusa, model: x, tree: [[]]} -> proposer.tree[0]: a list of 1 to 16 whole numbers from 0 to 63
proposer: {method: medusa, model: x, tree: [0]} -> proposer.tree[0]
proposer: {method: medusa, model: x, tree: [[0], [0, -1]]} -> proposer.tree[1][1]: a whole number from 0 to 63
proposer: {method: medusa, model: x, tree: [[64]]} -> proposer.tree[0][0]
proposer: {method: medusa, model: x, tree: [[0], [1, 0]]} -> proposer.tree: path [1, 0] has no parent
proposer: {method: medusa, model: x, tree: [[0], [1], [0]]} -> proposer.tree: path [0] occurs twice
proposer: {method: medusa, model: x, tree: auto}, verification: {lenience: 0.9} -> verification.lenience: the proposer drafts trees
proposer: {method: ngram}, verification: {lenience: 0.9, method: block} -> verification.method: lenience is 0.9
proposer: {method: ngram}, verification: {lenience: 0.9, method: coupled} -> verification.method: lenience is 0.9
proposer: {method: cascade, proposers: {method: ngram}} -> proposer.proposers: a list of 2 to 3 proposers
proposer: {method: cascade, proposers: [{method: ngram}]} -> proposer.proposers: got a list of 1
proposer: {method: cascade, proposers: [method: ngram, method: ngrm]} -> proposer.proposers[1].method: did you mean ngram?
proposer: {method: cascade, proposers: [method: ngram, method: cascade]} -> proposer.proposers[1].method: MEMBERS
proposer: {method: cascade, proposers: [method: ngram, method: ngram]} -> proposer.proposers[1].method: a second time
proposer: {method: cascade, proposers: [{method: eagle3, model: x}, {method: draft_model, model: x}]} -> proposer.proposers[1].method: one such
proposer: {method: cascade, proposers: [{method: draft_model, model: x}, {method: medusa, model: x, tree: auto}]} -> proposer.method: with a tree
proposer: {method: cascade, proposers: [{method: vllm, config: {method: mtp}}, {method: ngram}]} -> proposer.proposers[1].method: the last method
proposer: {method: cascade, proposers: [{method: draft_model, model: x}, {method: vllm, config: {method: mtp}}]} -> proposer.proposers[0].method
proposer: {method: cascade, proposers: [{method: ngram, tree: null}, {method: medusa, model: x}]} -> proposer.proposers[0].tree: medusa
proposer: {method: cascade, proposers: [{method: ngram, shared_tokens: 5000}, {method: medusa, model: x}]} -> proposer.proposers[0].shared_tokens
proposer: {method: cascade, proposers: [method: ngram, {method: medusa, model: x, tree: [[0], [1], [2], [3]]}]}, draft_length: {tokens: 3} -> draft_length.tokens: proposer.proposers[1].tree has 4 tokens
proposer: {method: vllm, config: {}} -> proposer.config: neither method nor model
proposer: {method: vllm, config: eagle3} -> proposer.config: a speculative config for vLLM
proposer: {method: vllm, config: {method: mtp, num_speculative_tokens: 3}} -> proposer.config.num_speculative_tokens: draft_length
proposer: {method: vllm, config: {method: mtp, enable_adaptive_verification: true}} -> proposer.config.enable_adaptive_verification
proposer: {method: vllm, config: {method: custom_class, model: a.B}} -> proposer.config.method
proposer: {method: vllm, config: {method: mtp, rejection_sample_method: synthetic}} -> proposer.config.rejection_sample_method: standard or block
proposer: {method: vllm, config: {method: mtp, rejection_sample_method: fly}} -> proposer.config.rejection_sample_method
proposer: {method: vllm, config: {method: mtp, rejection_sample_method: block}}, verification: {method: token} -> verification.method: one of the two
proposer: {method: vllm, config: {model: x, draft_sample_method: probabilistic}}, verification: {method: coupled} -> verification.method: block or token
proposer: {method: vllm, config: {method: mtp}}, verification: {lenience: 0.9} -> verification.lenience: vLLM's drafters are verified exactly
proposer: {method: cascade, proposers: [method: ngram, {method: vllm, config: {model: x, draft_sample_method: drawn}}]} -> proposer.proposers[1].config.draft_sample_method: greedy
"""  # noqa: E501


def mistakes() -> list[tuple[Any, str, str]]:
    """Data of a file, the key that is named, and words."""
    cases = []
    for line in MISTAKES.strip().splitlines():
        data, _, named = line.partition(" -> ")
        key, _, words = named.partition(": ")
        cases.append(
            (yaml.safe_load(data if data[0] == "{" else f"{{{data}}}"), key, words.replace("MEMBERS", MEMBERS))
        )
    return cases


@pytest.mark.parametrize(("data", "key", "words"), mistakes())
def test_one_mistake_is_one_line_with_its_key_and_what_is_allowed(data: object, key: str, words: str) -> None:
    message = message_of(data)
    assert message.startswith(f"spec.yaml: {key}: ")
    assert len(message.splitlines()) == 1
    assert "allowed" in message
    assert words in message


@pytest.mark.parametrize("data", [None, [1]])
def test_what_is_no_section_is_told_the_keys(data: object) -> None:
    assert "allowed: a YAML mapping with the keys proposer, draft_length, verification" in message_of(data)


def keys_of(message: str) -> list[str]:
    """The keys that are named, one a line."""
    first, *rest = message.removeprefix("spec.yaml: ").splitlines()
    assert not rest or first == f"{len(rest)} mistakes:"
    return [line.split(":")[0].strip() for line in rest or [first]]


def test_all_mistakes_are_listed_even_under_an_unknown_method() -> None:
    data = {"proposer": {"method": "ngrm", "shared": 3, "min_order": 0}, "verification": {"lenience": 2}}
    expected = {"proposer.method", "proposer.shared", "proposer.min_order", "verification.lenience"}
    assert set(keys_of(message_of(data))) == expected


@pytest.mark.parametrize(
    ("proposer", "keys"),
    [
        # A slip of the pen: its keys are checked as those of the method meant.
        ({"method": "draftmodel"}, ["method", "model"]),
        ({"method": "draftmodel", "model": "x", "window": 9}, ["method", "window"]),
        # Another method or none: keys are checked as those of the method most of them belong to ...
        ({"method": "hydra", "model": 3, "tree": "auto"}, ["method", "model"]),
        ({"model": "x", "dtype": "bad"}, ["method", "dtype"]),
        # ... or, where that is none or more than one, not at all.
        ({"method": "hydra", "heads": 5}, ["method"]),
        ({"method": "hydra", "model": 3, "heads": 5}, ["method"]),
        ({"draft_sampling": "sample"}, ["method"]),
    ],
)
def test_under_an_unknown_method_only_what_is_certainly_wrong_is_listed(
    proposer: dict[str, Any], keys: list[str]
) -> None:
    assert keys_of(message_of({"proposer": proposer})) == [f"proposer.{key}" for key in keys]
