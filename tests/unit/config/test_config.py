"""The configuration file: what is taken, what is refused and with which words."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.sizes import examples
from vllm_spec_plugin.config import (
    ConfigError,
    DraftModelConfig,
    MedusaConfig,
    NgramConfig,
    PluginConfig,
    SuffixConfig,
    load_config,
    parse_config,
)
from vllm_spec_plugin.proposers.medusa import check
from vllm_spec_plugin.proposers.section import DraftWeights, FixedTree

CONFIGS = Path(__file__).parents[3] / "configs"
NGRAM = {"method": "ngram"}
DRAFT = {"method": "draft_model", "model": "org/small"}
SUFFIX = {"method": "suffix", "shared": True}
MEDUSA = {"method": "medusa", "model": "org/heads"}


def message_of(data: object) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(data, "spec.yaml")
    return str(caught.value)


@pytest.fixture
def written(tmp_path: Path) -> Any:
    """Writes a file and gives what load_config says of it, less the path."""

    def message(content: str | bytes) -> str:
        path = tmp_path / "plugin.yaml"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        with pytest.raises(ConfigError) as caught:
            load_config(path)
        assert str(caught.value).startswith(f"{path}: ")
        return str(caught.value).removeprefix(f"{path}: ")

    return message


def test_the_least_file_has_the_documented_defaults() -> None:
    config = parse_config({"proposer": NGRAM}, "spec.yaml")
    assert config.model_dump() == {
        "proposer": {
            "method": "ngram",
            "mode": "lookup",
            "min_order": 2,
            "max_order": 5,
            "window": None,
            "draft_sampling": "greedy",
            "shared": False,
            "shared_tokens": None,
            "shared_scope": None,
        },
        "draft_length": {"policy": "optimal", "tokens": 4, "half_life": 64.0, "explore": 0.01},
        "verification": {"lenience": 1.0, "method": "block"},
        "stream_granularity": "free",
        "stream_tokens": None,
    }


def test_a_draft_model_has_the_documented_defaults() -> None:
    assert parse_config({"proposer": DRAFT}, "spec.yaml").proposer.model_dump() == {
        "method": "draft_model",
        "model": "org/small",
        "draft_sampling": "probabilistic",
        "draft_temperature": None,
        "min_confidence": 0.0,
        "dtype": None,
        "quantization": None,
        "catch_up_tokens": 2048,
        "branches": None,
    }


def test_suffix_has_the_documented_defaults() -> None:
    assert parse_config({"proposer": {"method": "suffix"}}, "spec.yaml").proposer.model_dump() == {
        "method": "suffix",
        "min_order": 2,
        "min_probability": 0.02,
        "draft_sampling": "greedy",
        "shared": False,
        "shared_tokens": None,
        "shared_scope": None,
    }


def test_medusa_has_the_documented_defaults() -> None:
    assert parse_config({"proposer": MEDUSA}, "spec.yaml").proposer.model_dump() == {
        "method": "medusa",
        "model": "org/heads",
        "draft_sampling": "greedy",
        "tree": None,
    }


def test_only_a_draft_model_keeps_kv_and_only_medusa_looks_at_hidden_states() -> None:
    methods = (NgramConfig, DraftModelConfig, MedusaConfig)
    assert [method.keeps_kv for method in methods] == [False, True, False]
    assert [method.uses_hidden_states for method in methods] == [False, False, True]


@pytest.mark.parametrize(
    ("proposer", "drafts_trees"),
    [
        (NGRAM, False),
        (DRAFT, False),
        ({**DRAFT, "branches": [1]}, True),
        (MEDUSA, False),
        ({**MEDUSA, "tree": "auto"}, True),
        ({**MEDUSA, "tree": [[0]]}, True),
    ],
)
def test_who_drafts_trees(proposer: dict[str, Any], drafts_trees: bool) -> None:
    assert parse_config({"proposer": proposer}, "spec.yaml").proposers[0].drafts_trees is drafts_trees


@pytest.mark.parametrize(
    ("branches", "num_branches", "num_nodes"), [(None, 1, 0), ([1, 1], 1, 2), ([3], 3, 3), ([2, 3, 1], 6, 2 + 6 + 6)]
)
def test_what_branches_come_to(branches: list[int] | None, num_branches: int, num_nodes: int) -> None:
    data = {"proposer": {**DRAFT, "branches": branches}, "draft_length": {"policy": "fixed", "tokens": 14}}
    proposer = parse_config(data, "spec.yaml").proposer
    assert isinstance(proposer, DraftModelConfig)
    assert proposer.draft_weights == DraftWeights("org/small", num_branches=num_branches)
    assert proposer.fixed_tree == (FixedTree("branches", num_nodes, len(branches)) if branches else None)


@pytest.mark.parametrize(("tree", "num_heads"), [(None, 7), ("auto", None), ([[0], [0, 5], [2]], 2)])
def test_how_many_heads_drafts_need(tree: object, num_heads: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[int | None] = []

    def check_heads(
        target: object, model: str, num_heads: int | None, where: str, *, needs_accuracy: bool
    ) -> list[str]:
        assert needs_accuracy is (tree == "auto")
        wanted.append(num_heads)
        return []

    monkeypatch.setattr(check, "check_heads", check_heads)
    data = {"proposer": {**MEDUSA, "tree": tree}, "draft_length": {"policy": "fixed", "tokens": 7}}
    parse_config(data, "spec.yaml").check_proposers(None, "spec.yaml")
    assert wanted == [num_heads]


def test_frequency_has_a_window_by_default() -> None:
    proposer = parse_config({"proposer": {**NGRAM, "mode": "frequency"}}, "spec.yaml").proposer
    assert isinstance(proposer, NgramConfig)
    assert proposer.window == 8192


SHARED = {**NGRAM, "shared": True}


def test_shared_texts_have_the_documented_defaults() -> None:
    proposer = parse_config({"proposer": SHARED}, "spec.yaml").proposer
    assert isinstance(proposer, NgramConfig)
    assert (proposer.shared_tokens, proposer.shared_scope) == (1_000_000, "salt")


@pytest.mark.parametrize("given", [{"shared_tokens": 1024}, {"shared_tokens": 10**9}, {"shared_scope": "global"}])
def test_what_sharing_may_be_given(given: dict[str, Any]) -> None:
    config = parse_config({"proposer": {**SHARED, **given}}, "spec.yaml")
    assert given.items() <= config.proposer.model_dump().items()


FIXED = {"proposer": NGRAM, "stream_granularity": "fixed"}
SEVEN = {"policy": "fixed", "tokens": 7}


@pytest.mark.parametrize(
    ("data", "stream_tokens"),
    [
        ({"proposer": NGRAM}, None),
        ({"proposer": NGRAM, "stream_granularity": "free", "stream_tokens": None}, None),
        (FIXED, 5),
        ({**FIXED, "stream_tokens": 5}, 5),
        ({**FIXED, "stream_tokens": 1024}, 1024),
        ({**FIXED, "draft_length": SEVEN}, 8),
        ({**FIXED, "draft_length": SEVEN, "stream_tokens": 8}, 8),
    ],
)
def test_a_group_of_the_stream_holds_what_a_step_may_give(data: dict[str, Any], stream_tokens: int | None) -> None:
    config = parse_config(data, "spec.yaml")
    assert config.stream_tokens == stream_tokens
    assert PluginConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    ("section", "key", "values"),
    [
        ("proposer", "min_order", (1, 5)),
        ("proposer", "max_order", (2, 16)),
        ("proposer", "window", (64, 1048576)),
        ("draft_length", "tokens", (1, 64)),
        ("verification", "lenience", (1e-9, 0.5, 1, 1.0)),
    ],
)
def test_the_ends_of_every_range_are_allowed(section: str, key: str, values: tuple[float, ...]) -> None:
    for value in values:
        data: dict[str, Any] = {"proposer": {**NGRAM, "mode": "frequency"}, "draft_length": {"policy": "fixed"}}
        data.setdefault(section, {})[key] = value
        assert getattr(getattr(parse_config(data, "spec.yaml"), section), key) == value


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("draft_temperature", (None, 1e-9, 1, 10)),
        ("min_confidence", (0, 0.999)),
        ("dtype", (None, "auto", "float32", "float16", "bfloat16")),
        ("quantization", (None, "fp8")),
        ("catch_up_tokens", (1, 10**9)),
    ],
)
def test_what_a_draft_model_may_be_given(key: str, values: tuple[object, ...]) -> None:
    for value in values:
        assert getattr(parse_config({"proposer": {**DRAFT, key: value}}, "spec.yaml").proposer, key) == value


@pytest.mark.parametrize(
    ("proposer", "key", "value"),
    [
        (DRAFT, "branches", (1,)),
        (DRAFT, "branches", (64,)),
        (DRAFT, "branches", (1,) * 16),
        (DRAFT, "branches", (2, 2, 1)),
        (MEDUSA, "draft_sampling", "probabilistic"),
        (MEDUSA, "tree", "auto"),
        (MEDUSA, "tree", ((63,),)),
        (MEDUSA, "tree", ((0,), (0, 0), (7,))),
        (MEDUSA, "tree", tuple((0,) * depth for depth in range(1, 17))),
    ],
)
def test_what_trees_may_be(proposer: dict[str, Any], key: str, value: object) -> None:
    """Lists of a file become tuples, which nothing changes."""
    given = yaml.safe_load(yaml.dump(value).replace("!!python/tuple", ""))
    data = {"proposer": {**proposer, key: given}, "draft_length": {"policy": "fixed", "tokens": 64}}
    config = parse_config(data, "spec.yaml")
    assert getattr(config.proposer, key) == value
    assert PluginConfig.model_validate(config.model_dump(mode="json")) == config


SHIPPED = {
    "cascade.yaml": 8,
    "ngram.yaml": 8,
    "ngram_frequency.yaml": 8,
    "suffix.yaml": 8,
    "draft_model.yaml": 8,
    "medusa.yaml": 4,
    "medusa_tree.yaml": 5,
    "multi_draft.yaml": 14,
}


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_shipped_files_are_valid_and_name_every_key_that_applies(name: str) -> None:
    config = load_config(CONFIGS / name)
    unused = set()
    if isinstance(config.proposer, NgramConfig):
        unused |= {"window"} if config.proposer.mode == "lookup" else set()
    if isinstance(config.proposer, NgramConfig | SuffixConfig):
        unused |= set() if config.proposer.shared else {"shared_tokens", "shared_scope"}
    for section in (config.proposer, config.draft_length, config.verification):
        assert section.model_fields_set == set(type(section).model_fields) - unused
    assert config.draft_length.tokens == SHIPPED[name]
    assert config.verification.lenience == 1


def test_the_shipped_file_for_a_start_names_the_keys_beside_its_sections_too() -> None:
    config = load_config(CONFIGS / "ngram.yaml")
    assert config.model_fields_set == set(PluginConfig.model_fields) - {"stream_tokens"}
    assert config.stream_granularity == "free"


def test_every_shipped_file_is_among_those_checked_here() -> None:
    assert {path.name for path in CONFIGS.glob("*.yaml")} == set(SHIPPED)


@pytest.mark.parametrize(
    "proposer", [{**NGRAM, "mode": "lookup"}, {**NGRAM, "mode": "frequency"}, SHARED, SUFFIX, DRAFT, MEDUSA]
)
def test_survives_json(proposer: dict[str, Any]) -> None:
    config = parse_config({"proposer": proposer, "verification": {"lenience": 1}}, "spec.yaml")
    assert PluginConfig.model_validate(config.model_dump(mode="json")) == config


def test_cannot_be_changed() -> None:
    config = parse_config({"proposer": NGRAM}, "spec.yaml")
    assert isinstance(config.proposer, NgramConfig)
    with pytest.raises(ValidationError):
        config.proposer.min_order = 3


def draft_of(path: Path, model: str) -> str:
    """Writes a file at `path` that names `model`, and tells the one that is meant."""
    path.write_text(yaml.safe_dump({"proposer": {"method": "draft_model", "model": model}}))
    proposer = load_config(path).proposer
    assert isinstance(proposer, DraftModelConfig)
    return proposer.model


def test_a_folder_beside_the_file_is_meant_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside, here = tmp_path / "conf", tmp_path / "here"
    for folder in (beside / "org" / "small", here / "org" / "small", tmp_path / "up"):
        folder.mkdir(parents=True)
    monkeypatch.chdir(here)
    assert draft_of(beside / "spec.yaml", "org/small") == str(beside / "org" / "small")
    assert draft_of(beside / "spec.yaml", "../up") == str(tmp_path / "up")
    monkeypatch.chdir(tmp_path)
    (beside / "spec.yaml").rename(beside / "other.yaml")
    proposer = load_config("conf/other.yaml").proposer
    assert isinstance(proposer, DraftModelConfig)
    assert proposer.model == str(tmp_path / "up")


@pytest.mark.parametrize("model", ["org/small", "here/small", "a\0b", "x" * 5000, "../none"])
def test_what_is_not_beside_the_file_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    (tmp_path / "here" / "small").mkdir(parents=True)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "org").touch()
    monkeypatch.chdir(tmp_path)
    assert draft_of(tmp_path / "conf" / "spec.yaml", model) == model


def test_plain_data_is_not_looked_for_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small").mkdir()
    monkeypatch.chdir(tmp_path)
    proposer = parse_config({"proposer": {**DRAFT, "model": "small"}}, "spec.yaml").proposer
    assert isinstance(proposer, DraftModelConfig)
    assert proposer.model == "small"


FREQUENCY = {**NGRAM, "mode": "frequency"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"proposer": {**NGRAM, "max_order": 99}},
            "proposer.max_order: got 99; allowed: a whole number from 1 to 16",
        ),
        ({"proposer": {**NGRAM, "max_order": 17}}, "proposer.max_order: got 17; allowed: a whole number from 1 to 16"),
        (
            {"proposer": {**NGRAM, "min_order": "5"}},
            "proposer.min_order: got the text '5'; allowed: a whole number from 1 to 16",
        ),
        (
            {"proposer": {**NGRAM, "min_order": True}},
            "proposer.min_order: got true; allowed: a whole number from 1 to 16",
        ),
        (
            {"proposer": {**NGRAM, "min_order": 2.0}},
            "proposer.min_order: got 2.0; allowed: a whole number from 1 to 16",
        ),
        (
            {"proposer": {**FREQUENCY, "window": 63}},
            "proposer.window: got 63; allowed: a whole number from 64 to 1048576",
        ),
        (
            {"proposer": {**NGRAM, "mode": "freqency"}},
            "proposer.mode: got the text 'freqency'; allowed: lookup, frequency; did you mean frequency?",
        ),
        ({"proposer": {**NGRAM, "mode": None}}, "proposer.mode: got nothing (null); allowed: lookup, frequency"),
        (
            {"proposer": {"method": "ngarm"}},
            "proposer.method: got the text 'ngarm'; allowed: cascade, draft_model, medusa, ngram, suffix; "
            "did you mean ngram?",
        ),
        ({"proposer": {"method": 5}}, "proposer.method: got 5; allowed: cascade, draft_model, medusa, ngram, suffix"),
        ({"proposer": {}}, "proposer.method: missing; allowed: cascade, draft_model, medusa, ngram, suffix"),
        ({"proposer": NGRAM, "draft_length": {}}, "draft_length.policy: missing; allowed: fixed, heuristic, optimal"),
        (
            {"proposer": NGRAM, "draft_length": {"policy": "fixed", "tokens": 0}},
            "draft_length.tokens: got 0; allowed: a whole number from 1 to 64",
        ),
        (
            {"proposer": {**NGRAM, "max_ordr": 3}},
            "proposer.max_ordr: unknown key (got 3); allowed: method, mode, min_order, max_order, window, "
            "draft_sampling, shared, shared_tokens, shared_scope; did you mean max_order?",
        ),
        (
            {"proposer": NGRAM, "tokens": 3},
            "tokens: unknown key (got 3); allowed: proposer, draft_length, verification, stream_granularity, "
            "stream_tokens; did you mean draft_length.tokens?",
        ),
        (
            {"proposer": NGRAM, "verification": None},
            "verification: got nothing (null); allowed: a section with keys of its own: lenience, method",
        ),
        (
            {"proposer": NGRAM, "verification": {7: 1}},
            "verification.7: got 7 as a key; allowed: lenience, method",
        ),
        (
            {},
            "proposer: missing; allowed: a section with the key method (cascade or draft_model or medusa or ngram or "
            "suffix) and those that go with it",
        ),
        (
            None,
            "it is empty; allowed: a YAML mapping with the keys proposer, draft_length, verification, "
            "stream_granularity, stream_tokens (proposer is required)",
        ),
        (
            [1],
            "got a list; allowed: a YAML mapping with the keys proposer, draft_length, verification, "
            "stream_granularity, stream_tokens (proposer is required)",
        ),
        (
            {"proposer": {**NGRAM, "min_order": 7}},
            "proposer.min_order: got 7, which is above proposer.max_order (5, its default); "
            "allowed: at most proposer.max_order",
        ),
        (
            {"proposer": {**NGRAM, "max_order": 1}},
            "proposer.max_order: got 1, which is below proposer.min_order (2, its default); "
            "allowed: at least proposer.min_order",
        ),
        (
            {"proposer": {**NGRAM, "window": 100}},
            "proposer.window: got 100, but proposer.mode is lookup, which has no window; "
            "allowed: leave it out, or set proposer.mode to frequency",
        ),
        (
            {"proposer": NGRAM, "stream_granularity": "fix"},
            "stream_granularity: got the text 'fix'; allowed: free, fixed; did you mean fixed?",
        ),
        (
            {"proposer": NGRAM, "stream_granularity": None},
            "stream_granularity: got nothing (null); allowed: free, fixed",
        ),
        (
            {"proposer": NGRAM, "stream_tokens": 8},
            "stream_tokens: got 8, but stream_granularity is free, so tokens are not grouped; "
            "allowed: leave it out, or set stream_granularity to fixed",
        ),
        (
            {**FIXED, "stream_tokens": None},
            "stream_tokens: got nothing (null), but stream_granularity is fixed; "
            "allowed: a whole number from 5 to 1024, or leave it out for 5",
        ),
        (
            {**FIXED, "stream_tokens": 4},
            "stream_tokens: got 4, but with draft_length.tokens 4 a step may give 5 tokens; "
            "allowed: a whole number from 5 to 1024, or leave it out for 5",
        ),
        (
            {**FIXED, "draft_length": SEVEN, "stream_tokens": 7},
            "stream_tokens: got 7, but with draft_length.tokens 7 a step may give 8 tokens; "
            "allowed: a whole number from 8 to 1024, or leave it out for 8",
        ),
        (
            {**FIXED, "stream_tokens": 1025},
            "stream_tokens: got 1025; allowed: a whole number from draft_length.tokens + 1 to 1024",
        ),
        (
            {**FIXED, "stream_tokens": "5"},
            "stream_tokens: got the text '5'; allowed: a whole number from draft_length.tokens + 1 to 1024",
        ),
        (
            {**FIXED, "draft_length": {"policy": "fixed", "tokens": 0}},
            "draft_length.tokens: got 0; allowed: a whole number from 1 to 64",
        ),
        (
            {"proposer": {**NGRAM, "shared": "yes"}},
            "proposer.shared: got the text 'yes'; allowed: true or false",
        ),
        (
            {"proposer": {**SHARED, "shared_tokens": 1023}},
            "proposer.shared_tokens: got 1023; allowed: a whole number from 1024 to 1000000000",
        ),
        (
            {"proposer": {**SHARED, "shared_scope": "everybody"}},
            "proposer.shared_scope: got the text 'everybody'; allowed: salt, global",
        ),
        (
            {"proposer": {**NGRAM, "shared_tokens": 5000}},
            "proposer.shared_tokens: got 5000, but proposer.shared is false, so no texts are kept; "
            "allowed: leave it out, or set proposer.shared to true",
        ),
        (
            {"proposer": {**NGRAM, "shared": False, "shared_scope": "salt"}},
            "proposer.shared_scope: got the text 'salt', but proposer.shared is false, so no texts are kept; "
            "allowed: leave it out, or set proposer.shared to true",
        ),
        (
            {"proposer": {**SHARED, "shared_tokens": None}},
            "proposer.shared_tokens: got nothing (null), but proposer.shared is true; allowed: a whole number from "
            "1024 to 1000000000, or leave it out for 1000000",
        ),
        (
            {"proposer": {**SHARED, "shared_scope": None}},
            "proposer.shared_scope: got nothing (null), but proposer.shared is true; allowed: salt, global, or leave "
            "it out for salt",
        ),
        (
            {"proposer": {**FREQUENCY, "window": None}},
            "proposer.window: got nothing (null), but proposer.mode is frequency; "
            "allowed: a whole number from 64 to 1048576, or leave it out for 8192",
        ),
        (
            {"proposer": {**NGRAM, "draft_sampling": "sample"}},
            "proposer.draft_sampling: got the text 'sample', but proposer.mode is lookup, which has no counts to "
            "draw from; allowed: greedy, or set proposer.mode to frequency",
        ),
        (
            {"proposer": {"method": "draft_model"}},
            "proposer.model: missing; allowed: a model's folder or its name on the Hugging Face hub",
        ),
        (
            {"proposer": {**DRAFT, "model": ""}},
            "proposer.model: got the text ''; allowed: a model's folder or its name on the Hugging Face hub",
        ),
        (
            {"proposer": {**DRAFT, "model": None}},
            "proposer.model: got nothing (null); allowed: a model's folder or its name on the Hugging Face hub",
        ),
        (
            {"proposer": {**DRAFT, "min_order": 3}},
            "proposer.min_order: unknown key (got 3); allowed: method, model, draft_sampling, draft_temperature, "
            "min_confidence, dtype, quantization, catch_up_tokens, branches; it belongs to proposer.method ngram and "
            "suffix",
        ),
        (
            {"proposer": {**NGRAM, "model": "x"}},
            "proposer.model: unknown key (got the text 'x'); allowed: method, mode, min_order, max_order, window, "
            "draft_sampling, shared, shared_tokens, shared_scope; it belongs to proposer.method draft_model and medusa",
        ),
        (
            {"proposer": {**DRAFT, "tokens": 3}},
            "proposer.tokens: unknown key (got 3); allowed: method, model, draft_sampling, draft_temperature, "
            "min_confidence, dtype, quantization, catch_up_tokens, branches; did you mean draft_length.tokens?",
        ),
        (
            {"proposer": {**DRAFT, "draft_sampling": "sample"}},
            "proposer.draft_sampling: got the text 'sample'; allowed: probabilistic, greedy",
        ),
        (
            {"proposer": {**DRAFT, "draft_temperature": 0}},
            "proposer.draft_temperature: got 0; allowed: a number above 0 up to 10, or null",
        ),
        (
            {"proposer": {**DRAFT, "draft_temperature": 10.5}},
            "proposer.draft_temperature: got 10.5; allowed: a number above 0 up to 10, or null",
        ),
        (
            {"proposer": {**DRAFT, "draft_temperature": 0.7, "draft_sampling": "greedy"}},
            "proposer.draft_temperature: got 0.7, but proposer.draft_sampling is greedy, which draws nothing; "
            "allowed: leave it out, or set proposer.draft_sampling to probabilistic",
        ),
        (
            {"proposer": {**DRAFT, "min_confidence": 1}},
            "proposer.min_confidence: got 1; allowed: a number from 0, below 1",
        ),
        (
            {"proposer": {**DRAFT, "dtype": "fp16"}},
            "proposer.dtype: got the text 'fp16'; allowed: auto, float32, float16, bfloat16, or null; "
            "did you mean float16?",
        ),
        (
            {"proposer": {**DRAFT, "quantization": ""}},
            "proposer.quantization: got the text ''; allowed: a name that vLLM's --quantization takes, or null",
        ),
        (
            {"proposer": {**DRAFT, "catch_up_tokens": 0}},
            "proposer.catch_up_tokens: got 0; allowed: a whole number from 1 up",
        ),
        (
            {"proposer": {**DRAFT, "branches": [2], "min_confidence": 0.5}},
            "proposer.min_confidence: got 0.5, but proposer.branches fixes the drafts' shape; allowed: 0, or leave "
            "proposer.branches out",
        ),
        (
            {"proposer": {**DRAFT, "branches": [2, 2]}},
            "draft_length.tokens: got 4, but proposer.branches has 6 tokens; allowed: from 6 to 64",
        ),
        (
            {"proposer": {**MEDUSA, "tree": [[0], [1], [2], [3], [4]]}},
            "draft_length.tokens: got 4, but proposer.tree has 5 tokens; allowed: from 5 to 64",
        ),
        (
            {"proposer": {**DRAFT, "branches": [2]}, "verification": {"lenience": 0.9}},
            "verification.lenience: got 0.9, but the proposer drafts trees, which are verified exactly; allowed: 1",
        ),
        (
            {"proposer": {**MEDUSA, "tree": "auto"}, "verification": {"lenience": 0.9}},
            "verification.lenience: got 0.9, but the proposer drafts trees, which are verified exactly; allowed: 1",
        ),
        (
            {"proposer": NGRAM, "verification": {"lenience": 0.9, "method": "block"}},
            "verification.method: got block, but verification.lenience is 0.9; allowed: token, or lenience 1",
        ),
        (
            {"proposer": {**MEDUSA, "tree": [[0], [1, 0]]}},
            "proposer.tree: path [1, 0] has no parent; allowed: add [1], or leave it out",
        ),
        (
            {"proposer": {**MEDUSA, "tree": [[0], [1], [0]]}},
            "proposer.tree: path [0] is there twice; allowed: each path once",
        ),
        (
            {"proposer": {"method": "medusa"}},
            "proposer.model: missing; allowed: a folder of Medusa heads or its name on the Hugging Face hub",
        ),
        (
            {"proposer": {**MEDUSA, "draft_sampling": "sample"}},
            "proposer.draft_sampling: got the text 'sample'; allowed: greedy, probabilistic",
        ),
        (
            {"proposer": {**MEDUSA, "branches": [2]}},
            "proposer.branches: unknown key (got a list); allowed: method, model, draft_sampling, tree; it belongs to "
            "proposer.method draft_model",
        ),
    ],
)
def test_one_mistake_is_one_line(data: object, message: str) -> None:
    assert message_of(data) == f"spec.yaml: {message}"


NGRAM_ITEM = {"method": "ngram"}


@pytest.mark.parametrize(
    ("proposers", "message"),
    [
        ([NGRAM_ITEM], "proposers: got a list of 1; allowed: a list of 2 to 3 proposers, each with its method"),
        ([NGRAM_ITEM] * 4, "proposers: got a list of 4; allowed: a list of 2 to 3 proposers, each with its method"),
        (NGRAM_ITEM, "proposers: got a section; allowed: a list of 2 to 3 proposers, each with its method"),
        (
            [NGRAM_ITEM, {"method": "ngrm"}],
            "proposers[1].method: got the text 'ngrm'; allowed: draft_model, medusa, ngram, suffix; "
            "did you mean ngram?",
        ),
        ([NGRAM_ITEM, {"model": "x"}], "proposers[1].method: missing; allowed: draft_model, medusa, ngram, suffix"),
        (
            [NGRAM_ITEM, {"method": "cascade", "proposers": []}],
            "proposers[1].method: got the text 'cascade'; allowed: draft_model, medusa, ngram, suffix",
        ),
        (
            [NGRAM_ITEM, NGRAM_ITEM],
            "proposers[1].method: got the text 'ngram', which is there already; allowed: each method once",
        ),
        (
            [{**NGRAM_ITEM, "min_order": 0}, MEDUSA],
            "proposers[0].min_order: got 0; allowed: a whole number from 1 to 16",
        ),
        (
            [{**NGRAM_ITEM, "tree": None}, MEDUSA],
            "proposers[0].tree: unknown key (got nothing (null)); allowed: method, mode, min_order, max_order, window, "
            "draft_sampling, shared, shared_tokens, shared_scope; it belongs to proposer.proposers[0].method medusa",
        ),
        (
            [{**NGRAM_ITEM, "window": 100}, MEDUSA],
            "proposers[0].window: got 100, but proposer.proposers[0].mode is lookup, which has no window; "
            "allowed: leave it out, or set proposer.proposers[0].mode to frequency",
        ),
    ],
)
def test_a_mistake_in_a_cascade_says_where(proposers: object, message: str) -> None:
    data = {"proposer": {"method": "cascade", "proposers": proposers}}
    assert message_of(data) == f"spec.yaml: proposer.{message}"


def test_a_cascade_has_its_proposers_in_order() -> None:
    config = parse_config({"proposer": {"method": "cascade", "proposers": [MEDUSA, NGRAM_ITEM]}}, "spec.yaml")
    assert [proposer.method for proposer in config.proposers] == ["medusa", "ngram"]
    assert PluginConfig.model_validate(config.model_dump()) == config
    assert config.where(config.proposers[0], "spec.yaml") == "spec.yaml: the cascade's medusa"


def test_a_tree_in_a_cascade_fits_the_draft_length_too() -> None:
    branching = {"method": "draft_model", "model": "any", "branches": [3, 2]}
    data = {"proposer": {"method": "cascade", "proposers": [NGRAM_ITEM, branching]}, "draft_length": {"tokens": 4}}
    expected = "spec.yaml: draft_length.tokens: got 4, but proposer.proposers[1].branches has 9 tokens"
    assert message_of({**data, "draft_length": {"policy": "fixed", "tokens": 4}}).startswith(expected)
    lossy = {**data, "draft_length": {"policy": "fixed", "tokens": 9}, "verification": {"lenience": 0.5}}
    assert "the proposer drafts trees" in message_of(lossy)


def test_models_of_a_cascade_lie_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "draft").mkdir()
    path = tmp_path / "cascade.yaml"
    items = "[{method: ngram}, {method: draft_model, model: draft}]"
    path.write_text(f"proposer: {{method: cascade, proposers: {items}}}")
    _, draft = load_config(path).proposers
    assert isinstance(draft, DraftModelConfig)
    assert draft.model == str(tmp_path / "draft")


@pytest.mark.parametrize(
    "value", [[], 3, "2", [0], [65], [True], [2.0], ["2"], [[2]], [None], {"a": 1}, [1] * 17, "auto", True]
)
def test_what_branches_are_not(value: object) -> None:
    message = message_of({"proposer": {**DRAFT, "branches": value}})
    assert message.startswith("spec.yaml: proposer.branches: got ")
    allowed = "; allowed: a list of 1 to 16 whole numbers from 1 to 64 such as [3, 1, 1], or null"
    assert message.endswith(allowed)


@pytest.mark.parametrize(
    "value",
    [[], [[]], [0], 3, "best", True, [[0, -1]], [[64]], [[0.0]], [["0"]], [[True]], ["auto"], {"a": 1}, [[0] * 17]],
)
def test_what_a_tree_is_not(value: object) -> None:
    message = message_of({"proposer": {**MEDUSA, "tree": value}})
    assert message.startswith("spec.yaml: proposer.tree: got ")
    allowed = "auto, null, or a list of paths such as [[0], [1], [0, 0]]: each a list of 1 to 16 ranks from 0 to 63"
    assert message.endswith(f"; allowed: {allowed}")


@pytest.mark.parametrize("tokens", [0, 65, -1, 4.0, "4", None])
def test_numbers_of_draft_tokens_out_of_range(tokens: object) -> None:
    message = message_of({"proposer": NGRAM, "draft_length": {"policy": "fixed", "tokens": tokens}})
    assert message.startswith("spec.yaml: draft_length.tokens: got ")
    assert message.endswith("; allowed: a whole number from 1 to 64")


@pytest.mark.parametrize("value", [0, 0.0, -0.5, 1.01, 2, float("nan"), float("inf"), True, "1.0", 10**400])
def test_lenience_out_of_range(value: object) -> None:
    message = message_of({"proposer": NGRAM, "verification": {"lenience": value}})
    assert message.startswith("spec.yaml: verification.lenience: got ")
    assert message.endswith("; allowed: a number above 0 up to 1")


@pytest.mark.parametrize(("lenience", "method"), [(1, "block"), (0.9, "token")])
def test_drafts_are_verified_by_blocks_where_that_is_exact(lenience: float, method: str) -> None:
    config = parse_config({"proposer": NGRAM, "verification": {"lenience": lenience}}, "spec.yaml")
    assert config.verification.method == method
    assert PluginConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize("lenience", [1.0, 0.5])
def test_drafts_can_be_verified_token_by_token(lenience: float) -> None:
    config = parse_config({"proposer": NGRAM, "verification": {"method": "token", "lenience": lenience}}, "spec.yaml")
    assert config.verification.method == "token"


@pytest.mark.parametrize("value", ["blocks", "", None, True, 1, ["block"]])
def test_what_a_method_of_verification_is_not(value: object) -> None:
    message = message_of({"proposer": NGRAM, "verification": {"method": value}})
    assert message.startswith("spec.yaml: verification.method: got ")
    assert "; allowed: block, token" in message


def test_all_mistakes_are_listed_even_under_an_unknown_method() -> None:
    data = {"proposer": {"method": "ngrm", "max_order": 99, "min_order": 0}, "verification": {"lenience": 2}}
    lines = message_of(data).splitlines()
    assert lines[0] == "spec.yaml: 4 mistakes:"
    assert {line.split(":")[0].strip() for line in lines[1:]} == {
        "proposer.method",
        "proposer.max_order",
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
        ({"method": "eagle", "model": 3, "dtype": "float16"}, ["method", "model"]),
        ({"method": "eagle", "model": 3, "tree": "auto"}, ["method", "model"]),
        ({"model": "x", "dtype": "bad"}, ["method", "dtype"]),
        ({"method": "eagle", "mode": "lookup", "max_order": 99}, ["method", "max_order"]),
        # ... or, where that is none or more than one, not at all.
        ({"method": "eagle", "heads": 5}, ["method"]),
        ({"method": "eagle", "model": 3, "heads": 5}, ["method"]),
        ({"draft_sampling": "sample"}, ["method"]),
    ],
)
def test_under_an_unknown_method_only_what_is_certainly_wrong_is_listed(
    proposer: dict[str, Any], keys: list[str]
) -> None:
    lines = message_of({"proposer": proposer}).removeprefix("spec.yaml: ").splitlines()
    mistakes = lines[1:] if len(lines) > 1 else lines
    assert [line.split(":")[0].strip() for line in mistakes] == [f"proposer.{key}" for key in keys]


def test_values_cannot_write_to_the_terminal() -> None:
    message = message_of({"proposer": {**NGRAM, "mode": "\x1b[2J\n" + "x" * 9999}, "a\nb": 1})
    assert "\x1b" not in message
    assert len(message) < 500
    assert len(message.splitlines()) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("proposer: {method: ngram, method: ngram}", "proposer.method: got it twice, in lines 1 and 1; allowed: once"),
        ("proposer: {method: ngram}\n3: x", "got 3 as a key in line 2; allowed: names"),
        ("proposer: {method: ngram, true: 1}", "proposer: got true as a key in line 1; allowed: names"),
        ("proposer: {method: ngram, [a]: 1}", "proposer: got a list or a section as a key in line 1; allowed: names"),
        ("proposer: {method: ngram}\n---\na: 1", "not YAML: line 2, column 1: "),
        ("a: &x b", "a: unknown key (got the text 'b'); allowed: "),
        ("a: &x b\nc: *x", "line 2, column 4: aliases (*name) are not allowed"),
        ("a: &x {<<: *x}", "line 1, column 12: aliases (*name) are not allowed"),
        ("a: !!python/object/apply:os.getcwd []", "line 1, column 4: tags (!!python/object/apply:os.getcwd) are not"),
        ("a: {\n  b", "not YAML: line 2, column 4: "),
        ("proposer:\n\tmethod: ngram", "not YAML: line 2, column 1: "),
        ("a: b\x01", "not YAML: line 1, column 5: character U+0001"),
        (b"a: \xff", "not text in UTF-8: byte 4 is 0xff"),
        ("", "it is empty; allowed: "),
        ("# nothing\n", "it is empty; allowed: "),
        ("just text", "got the text 'just text'; allowed: a YAML mapping"),
        ("%YAML " + "9" * 5000, "not YAML: line 1, column "),
        ("proposer: " + "9" * 5000, "line 1, column 11: a number of 5000 digits"),
    ],
)
def test_files_that_say_something_else(written: Any, content: str | bytes, message: str) -> None:
    said = written(content)
    assert message in said
    assert said.startswith(message) or "2 mistakes" in said


def test_mistakes_of_syntax_and_of_meaning_come_together(written: Any) -> None:
    said = written("proposer: {method: ngram, min_order: 2, min_order: 3, max_order: x}")
    assert said.splitlines() == [
        "2 mistakes:",
        "  proposer.min_order: got it twice, in lines 1 and 1; allowed: once",
        "  proposer.max_order: got the text 'x'; allowed: a whole number from 1 to 16",
    ]


def test_numbers_are_read_as_yaml_1_2_has_them(tmp_path: Path) -> None:
    path = tmp_path / "plugin.yaml"
    path.write_text("proposer: {method: ngram, max_order: 010}\nverification: {lenience: 5e-1}\n")
    config = load_config(path)
    assert isinstance(config.proposer, NgramConfig)
    assert (config.proposer.max_order, config.verification.lenience) == (10, 0.5)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "plugin.yaml"
    path.write_bytes(b"\xef\xbb\xbfproposer: {method: ngram}")
    assert load_config(str(path)).proposer.method == "ngram"


@pytest.mark.parametrize(
    ("content", "limit"),
    [
        ("[" * 100_000, "nested more than 16 levels"),
        ("{a: " * 100_000, "nested more than 16 levels"),
        ("- " * 100_000, "nested more than 16 levels"),
        ("a: [" + "1," * 400_000 + "]", "more than 1000 keys and values"),
        ("#" * (1 << 20) + "\n", "larger than 1,048,576 bytes"),
    ],
)
def test_hostile_files_are_refused_quickly(written: Any, content: str, limit: str) -> None:
    start = time.perf_counter()
    assert limit in written(content)
    assert time.perf_counter() - start < 2


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, reason in (
        (tmp_path / "none.yaml", "no such file"),
        (tmp_path, "a directory"),
        (tmp_path / "pipe", "not a regular file"),
        (Path("/dev/zero"), "not a regular file"),
        (tmp_path / ("x" * 300), "cannot be read: File name too long"),
        (Path("a\0b"), "cannot be read: embedded null"),
    ):
        with pytest.raises(ConfigError, match=reason):
            load_config(path)


def test_an_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plugin.yaml"
    path.write_text("proposer: {method: ngram}")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # file modes do not stop root, who may run this
    with pytest.raises(ConfigError, match="cannot be read: Permission denied"):
        load_config(path)


def test_importing_is_cheap() -> None:
    code = "import sys, vllm_spec_plugin.config; print([m for m in ('vllm', 'torch', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def assert_readable(error: ConfigError, given: object) -> None:
    message, quoted = str(error), str(given).lower()
    assert "spec.yaml" in message
    assert all(line.isprintable() for line in message.split("\n"))
    leaked = [word for word in ("pydantic", "http", "traceback", "value_error") if word in message.lower()]
    # A message quotes what is wrong.
    assert all(word in quoted for word in leaked)


WORDS = """
    proposer method mode min_order max_order window draft_sampling draft_length policy tokens lenience verification
    ngram lookup frequency fixed greedy sample draft_model model draft_temperature min_confidence dtype quantization
    catch_up_tokens probabilistic float16 medusa tree branches auto shared shared_tokens shared_scope salt global
    stream_granularity stream_tokens free suffix min_probability block token
"""
KEYS = st.sampled_from(WORDS.split())
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | KEYS | st.dates() | st.binary()
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text() | st.integers() | st.none(), inner, max_size=4)
    ),
    max_leaves=10,
)
METHODS = st.sampled_from(["ngram", "draft_model", "medusa", "suffix"])
SECTIONS = st.fixed_dictionaries(
    {
        "proposer": st.fixed_dictionaries({"method": METHODS | VALUES}).flatmap(
            lambda base: st.dictionaries(KEYS, VALUES, max_size=4).map(lambda more: {**more, **base})
        )
    },
    optional={
        "draft_length": VALUES,
        "verification": VALUES,
        "stream_granularity": st.sampled_from(["free", "fixed"]) | VALUES,
        "stream_tokens": VALUES,
    },
)


@given(VALUES | SECTIONS)
@settings(max_examples=examples(30, 200), deadline=None)
def test_no_value_raises_anything_else(data: object) -> None:
    try:
        parse_config(data, "spec.yaml")
    except ConfigError as error:
        assert_readable(error, data)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "spec.yaml"


YAMLISH = st.text(alphabet="abn01.-:,[]{}#&*!|>'\"%@` \n\t\\xuU?~<=", max_size=60).map(str.encode)


@given(st.binary(max_size=200) | YAMLISH | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
@example(b"HTTP")
@settings(max_examples=examples(80, 500), deadline=None)
def test_no_bytes_raise_anything_else(scratch: Path, content: bytes) -> None:
    scratch.write_bytes(content)
    try:
        load_config(scratch)
    except ConfigError as error:
        assert_readable(error, content)


@given(VALUES | SECTIONS)
@settings(max_examples=examples(30, 200), deadline=None)
def test_no_dumped_value_raises_anything_else(scratch: Path, data: object) -> None:
    scratch.write_text(yaml.safe_dump(data), encoding="utf-8", errors="surrogatepass")
    try:
        load_config(scratch)
    except ConfigError as error:
        assert_readable(error, data)
