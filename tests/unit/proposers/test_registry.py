"""Methods of other distributions: found by entry point, checked like the plugin's own, refused by name if broken."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.third_party import find, install, install_example
from vllm_spec_plugin.config import ConfigError, PluginConfig, parse_config
from vllm_spec_plugin.proposers import registry

BIGRAM = {"method": "bigram"}
NGRAM = {"method": "ngram"}
MINE = """
from typing import Annotated, ClassVar, Literal
from pydantic import Field, model_validator
from vllm_spec_plugin.proposers.section import ProposerConfig

class Mine(ProposerConfig):
    model_keys: ClassVar[tuple[str, ...]] = ("folder",)
    method: Literal["mine"] = Field(description="x")
    folder: str = Field(default="heads", description="x")
    wide: bool = Field(default=False, description="x")
    share: float = Field(default=0.5, description="x")
    parts: list[str] = Field(default_factory=list, description="x")

    @model_validator(mode="after")
    def _check(self):
        if self.share > 3:
            raise KeyError("share")
        if self.share > 2:
            raise ValueError("share is more than there is")
        return self

    def check(self, target, num_tokens, where):
        if self.wide:
            raise RuntimeError("out of paper")
        return [f"{where}: {num_tokens} tokens"]
"""


def message_of(proposer: object) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config({"proposer": proposer}, "spec.yaml")
    return str(caught.value).removeprefix("spec.yaml: ")


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find(install_example(tmp_path), monkeypatch)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find(install(tmp_path, "mine", {"mine": "mine:Mine"}, {"mine": MINE}), monkeypatch)


@pytest.mark.parametrize("proposer", [BIGRAM, {"method": "cascade", "proposers": [BIGRAM, NGRAM]}])
def test_a_third_partys_section_is_read_and_travels(proposer: dict[str, Any], example: None) -> None:
    config = parse_config({"proposer": proposer}, "spec.yaml")
    assert isinstance(config, PluginConfig)
    [bigram] = [member for member in config.proposers if member.method == "bigram"]
    assert (type(bigram).__module__, bigram.model_dump()) == ("bigram_proposer", {**BIGRAM, "window": 1024})
    sent = json.loads(json.dumps(config.model_dump(mode="json")))
    assert parse_config(sent, "elsewhere") == config


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"folder": 3}, "proposer.folder: got 3; allowed: a text"),
        ({"wide": 3}, "proposer.wide: got 3; allowed: true or false"),
        ({"share": "a"}, "proposer.share: got the text 'a'; allowed: a number"),
        ({"parts": 1}, "proposer.parts: got 1; allowed: a list"),
        ({"share": 2.5}, "proposer: got a section; share is more than there is"),
        ({"share": 4.0}, "proposer: checking it failed: KeyError: 'share'"),
    ],
)
def test_keys_of_any_kind_have_messages(keys: dict[str, Any], message: str, mine: None) -> None:
    assert message_of({"method": "mine", **keys}) == message


def test_it_is_imported_only_if_it_is_named_or_all_are_listed(example: None) -> None:
    parse_config({"proposer": NGRAM}, "spec.yaml")
    message_of({**NGRAM, "min_order": 0})
    assert "bigram_proposer" not in sys.modules
    message_of({"method": "nothing"})
    assert "bigram_proposer" in sys.modules


BROKEN = {
    "raises": ("raise OSError('no disk')", "importing broken:Config failed: OSError: no disk"),
    "exits": ("raise SystemExit(3)", "importing broken:Config failed: SystemExit: 3"),
    "empty": ("", "importing broken:Config failed: AttributeError: module 'broken' has no attribute 'Config'"),
    "no section": (
        "Config = 3",
        "broken:Config is not a subclass of vllm_spec_plugin.proposers.section.ProposerConfig",
    ),
    "other name": (MINE.replace("class Mine", "class Config"), 'its key must be method: Literal["broken"]'),
    "no schema": (
        MINE.replace("class Mine", "class Config").replace('"mine"', '"broken"').replace("parts: list[str]", "p: type"),
        "its keys have no JSON schema: ",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_one_is_told_by_its_distribution_and_harms_no_other(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    text, reason = BROKEN[name]
    find(install(tmp_path, "faulty", {"broken": "broken:Config"}, {"broken": text}), monkeypatch)
    message = message_of({"method": "broken"})
    start = "proposer 'broken' of distribution faulty 1 cannot be used: "
    assert message.startswith(f"proposer.method: {start}{reason}")
    assert message.endswith("; allowed: another method")
    cascade = message_of({"method": "cascade", "proposers": [NGRAM, {"method": "broken"}]})
    assert cascade.startswith(f"proposer.proposers[1].method: {start}")
    assert parse_config({"proposer": NGRAM}, "spec.yaml").proposer.method == "ngram"
    assert message_of({"method": "nothing"}) == (
        "proposer.method: got the text 'nothing'; allowed: cascade, draft_model, eagle3, grammar, medusa, "
        "ngram, prediction, suffix, vllm; if it is a vLLM method: {method: vllm, config: {method: nothing}}"
    )
    assert any(start in record.message for record in caplog.records)


@pytest.mark.parametrize("name", ["ngram", "cascade"])
def test_a_name_of_ours_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    find(install(tmp_path, "greedy", {name: "mine:Mine"}, {"mine": MINE}), monkeypatch)
    config = parse_config({"proposer": NGRAM}, "spec.yaml")
    assert type(config.proposer) in registry.BUNDLED
    [record] = caplog.records
    assert record.message.startswith(f"proposer '{name}' of distribution greedy 1 is ignored: ")


def test_two_distributions_with_one_method_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        install(tmp_path, name, {"mine": "mine:Mine"}, {"mine": MINE})
    find(tmp_path, monkeypatch)
    message = message_of({"method": "mine"})
    assert "distribution a 1" in message
    assert "distribution b 1" in message
    assert "only one distribution may register a method" in message


def test_its_check_is_asked(mine: None, caplog: pytest.LogCaptureFixture) -> None:
    parse_config({"proposer": {"method": "mine"}}, "spec.yaml").check_proposers(None, "spec.yaml")
    assert [record.message for record in caplog.records] == ["spec.yaml: 4 tokens"]
    with pytest.raises(ConfigError) as caught:
        parse_config({"proposer": {"method": "mine", "wide": True}}, "spec.yaml").check_proposers(None, "spec.yaml")
    assert str(caught.value) == "spec.yaml: proposer: checking it failed: RuntimeError: out of paper"
