"""Configurations that are taken, and their defaults."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.config.cases import DRAFT, FIXED, MEDUSA, NGRAM, SEVEN, SHARED
from vllm_spec_plugin.config import (
    DraftModelConfig,
    NgramConfig,
    OptimalDraftLength,
    PluginConfig,
    SuffixConfig,
    load_config,
    parse_config,
)

CONFIGS = Path(__file__).parents[3] / "configs"


def test_the_least_file_has_the_documented_defaults() -> None:
    config = parse_config({"proposer": NGRAM}, "spec.yaml")
    assert config.model_dump() == {
        "proposer": {"method": "ngram", "min_order": 2, "shared": False, "shared_tokens": None, "shared_scope": None},
        "draft_length": {"policy": "optimal", "tokens": 4, "half_life": 64.0, "memory": "on"},
        "verification": {"lenience": 1.0, "method": None},
        "stream_granularity": "free",
        "stream_tokens": None,
        "requests": {"spec": "on", "spec_tokens": None},
        "switch": {"spec": "on", "spec_tokens": None},
    }
    proposer = parse_config({"proposer": SHARED}, "spec.yaml").model_dump()["proposer"]
    assert (proposer["shared_tokens"], proposer["shared_scope"]) == (1_000_000, "salt")


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
    ("switch", "most"),
    [({}, 4), ({"spec_tokens": 4}, 4), ({"spec_tokens": 1}, 1), ({"spec": "off", "spec_tokens": 2}, 0)],
)
def test_a_limit_is_at_most_the_longest_draft_and_off_is_none(switch: dict[str, Any], most: int) -> None:
    config = parse_config({"proposer": NGRAM, "switch": switch}, "spec.yaml")
    assert config.max_draft_tokens == most
    assert PluginConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    ("proposer", "section", "key", "values"),
    [
        (NGRAM, "proposer", "min_order", (1, 16)),
        (NGRAM, "draft_length", "tokens", (1, 64)),
        (NGRAM, "verification", "lenience", (1e-9, 0.5, 1, 1.0)),
        (DRAFT, "proposer", "dtype", (None, "auto", "float32", "float16", "bfloat16")),
        (DRAFT, "proposer", "quantization", (None, "fp8")),
        (DRAFT, "proposer", "catch_up_tokens", (1, 10**9)),
    ],
)
def test_the_ends_of_every_range_are_allowed(
    proposer: dict[str, Any], section: str, key: str, values: tuple[object, ...]
) -> None:
    for value in values:
        data: dict[str, Any] = {"proposer": dict(proposer), "draft_length": {"policy": "fixed"}}
        data.setdefault(section, {})[key] = value
        assert getattr(getattr(parse_config(data, "spec.yaml"), section), key) == value


SHIPPED = {
    "cascade.yaml": 8,
    "grammar.yaml": 16,
    "ngram.yaml": 8,
    "prediction.yaml": 16,
    "suffix.yaml": 8,
    "vllm.yaml": 4,
    "draft_model.yaml": 8,
    "eagle3.yaml": 4,
    "eagle3_cascade.yaml": 8,
    "medusa.yaml": 4,
    "medusa_tree.yaml": 5,
}


@pytest.mark.parametrize("name", sorted(path.name for path in CONFIGS.glob("*.yaml")))
def test_shipped_files_are_valid_and_name_every_key_that_applies(name: str) -> None:
    config = load_config(CONFIGS / name)
    unused = set()
    if isinstance(config.proposer, NgramConfig | SuffixConfig):
        unused |= set() if config.proposer.shared else {"shared_tokens", "shared_scope"}
    sections = [config.proposer, config.draft_length] + [config.verification] * (not config.is_native)
    for section in sections:
        assert section.model_fields_set == set(type(section).model_fields) - unused
    assert config.draft_length.tokens == SHIPPED[name]
    assert config.verification.lenience == 1


def draft_of(path: Path, model: str) -> str:
    """Writes a file at `path` whose cascade names `model`, and tells the one that is meant."""
    path.write_text(yaml.safe_dump({"proposer": {"method": "cascade", "proposers": [NGRAM, DRAFT | {"model": model}]}}))
    return meant_by(load_config(path))


def meant_by(config: PluginConfig) -> str:
    *_, proposer = config.proposers
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
    assert meant_by(load_config("conf/other.yaml")) == str(tmp_path / "up")


@pytest.mark.parametrize("model", ["org/small", "here/small", "a\0b", "x" * 5000, "../none"])
def test_what_is_not_beside_the_file_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    (tmp_path / "here" / "small").mkdir(parents=True)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "org").touch()
    monkeypatch.chdir(tmp_path)
    assert draft_of(tmp_path / "conf" / "spec.yaml", model) == model


@pytest.mark.parametrize(("lenience", "method"), [(1, "block"), (0.9, "token")])
def test_on_v1_drafts_are_verified_by_blocks_where_that_is_exact(lenience: float, method: str) -> None:
    config = parse_config({"proposer": NGRAM, "verification": {"lenience": lenience}}, "spec.yaml")
    assert config.verification.on_v1 == method
    assert PluginConfig.model_validate(config.model_dump(mode="json")) == config


def vllms(**keys: str) -> dict[str, Any]:
    return {"method": "vllm", "config": {"method": "draft_model", "model": "D"} | keys}


@pytest.mark.parametrize(
    ("proposer", "method", "verified", "shares"),
    [
        (NGRAM, None, "coupled", False),
        (MEDUSA, None, "coupled", True),
        ({**MEDUSA, "draft_sampling": "greedy"}, None, "coupled", False),
        (MEDUSA, "token", "token", False),
        (vllms(), None, "coupled", True),
        (vllms(), "block", "block", False),
        (vllms(draft_sample_method="greedy"), None, "coupled", False),
        (vllms(draft_sample_method="probabilistic"), None, "token", False),
        (vllms(draft_sample_method="probabilistic"), "block", "block", False),
        (vllms(rejection_sample_method="standard"), None, "token", False),
        (vllms(rejection_sample_method="block"), None, "block", False),
        ({"method": "cascade", "proposers": [NGRAM, vllms()]}, None, "coupled", True),
    ],
)
def test_on_v2_drafts_are_verified_with_the_targets_noise_unless_a_key_says_otherwise(
    proposer: dict[str, Any], method: str | None, verified: str, shares: bool
) -> None:
    config = parse_config({"proposer": proposer, "verification": {"method": method}}, "spec.yaml")
    assert (config.verified_on_v2, config.shares_noise_on_v2) == (verified, shares)


def test_a_cascade_has_its_proposers_in_order() -> None:
    config = parse_config({"proposer": {"method": "cascade", "proposers": [MEDUSA, NGRAM]}}, "spec.yaml")
    assert [proposer.method for proposer in config.proposers] == ["medusa", "ngram"]
    assert PluginConfig.model_validate(config.model_dump()) == config
    assert config.where(config.proposers[0], "spec.yaml") == "spec.yaml: the cascade's medusa"


@pytest.mark.parametrize(
    ("given", "memory"), [("on", "on"), ("off", "off"), ("kept", "FOLDER/kept"), ("/kept", "/kept"), ("~/k", "HOME/k")]
)
def test_memory_is_on_off_or_a_folder_beside_the_file(given: str, memory: str, tmp_path: Path) -> None:
    (tmp_path / "plugin.yaml").write_text(f"proposer: {{method: ngram}}\ndraft_length: {{memory: {given}}}\n")
    length = load_config(tmp_path / "plugin.yaml").draft_length
    assert isinstance(length, OptimalDraftLength)
    assert length.memory == memory.replace("FOLDER", str(tmp_path)).replace("HOME", str(Path.home()))
