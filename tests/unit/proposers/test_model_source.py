"""Tests reading a model's folder, and refusing names that are plainly none."""

from pathlib import Path
from typing import Any

import pytest
from transformers import Qwen2Config

from tests.unit.proposers.draft_model.folders import VOCAB_SIZE, copy_model
from tests.unit.proposers.refusals import refusal
from vllm_spec_plugin.proposers.model_files import UnreadableError
from vllm_spec_plugin.proposers.model_source import ModelSource, check_name, read_facts, read_tokens


@pytest.mark.parametrize("name", ["draft", "gpt2", "org/model-1.5B_v2", "1org/2"])
def test_a_folder_with_a_config_and_what_may_be_a_hub_name_is_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    copy_model(tmp_path / "draft")
    monkeypatch.chdir(tmp_path)
    check_name(name, "spec.yaml")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("/no/such", "there is no folder '/no/such'"),
        ("./draft", "there is no folder './draft'"),
        ("../draft", "there is no folder '../draft'"),
        ("~/draft", "there is no folder '~/draft'"),
        ("a/b/c", "there is no folder 'a/b/c'"),
        ("a b", "there is no folder 'a b'"),
        ("a\0\x1b", r"there is no folder 'a\x00\x1b'"),
        (".", "the folder '.' has no config.json"),
        ("file", "'file' is not a folder"),
        ("x" * 5000, "cannot be read: File name too long"),
    ],
)
def test_what_is_plainly_no_model_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    assert reason in refusal(check_name, name, "spec.yaml", start="spec.yaml: proposer.model: ")


def test_facts_of_a_config(tmp_path: Path) -> None:
    facts = read_facts(ModelSource(copy_model(tmp_path / "draft", eos_token_id=[3, 5])))
    assert facts.vocab_size == VOCAB_SIZE
    assert facts.context == 2048
    assert (facts.num_heads, facts.num_kv_heads) == (6, 1)
    assert facts.end_ids == {0, 3, 5}  # 0 is the generation config's


@pytest.mark.parametrize(
    ("rope", "context"),
    [
        ({"rope_type": "linear", "factor": 4.0}, 8192),
        ({"rope_type": "dynamic", "factor": 2.0}, 4096),
        ({"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 256}, 2048),
    ],
)
def test_rope_stretches_the_context_as_in_vllm(tmp_path: Path, rope: dict[str, Any], context: int) -> None:
    folder = copy_model(tmp_path / "draft", rope_parameters={"rope_theta": 10000.0, **rope})
    assert read_facts(ModelSource(folder)).context == context


@pytest.mark.parametrize(
    "text", ["{", '{"model_type": "none such"}', "[]", '{"model_type": "llama", "vocab_size": "x"}']
)
def test_a_config_that_cannot_be_read_has_a_reason_of_one_line(tmp_path: Path, text: str) -> None:
    folder = copy_model(tmp_path / "draft")
    (tmp_path / "draft" / "config.json").write_text(text)
    with pytest.raises(UnreadableError) as caught:
        read_facts(ModelSource(folder))
    assert str(caught.value).isprintable()
    assert str(caught.value)


def test_a_tokenizer_of_its_own_is_read_in_the_models_place(tmp_path: Path) -> None:
    bare = copy_model(tmp_path / "bare", ("tokenizer.json", "tokenizer_config.json"))
    whole = copy_model(tmp_path / "whole")
    assert len(read_tokens(ModelSource(bare, tokenizer=whole)).ids) == VOCAB_SIZE
    assert ModelSource(bare, tokenizer=whole).tokenizer_key == ModelSource(whole).tokenizer_key


def test_a_missing_tokenizer_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    llama = copy_model(tmp_path / "llama", ("tokenizer.json", "tokenizer_config.json"))
    with pytest.raises(UnreadableError):
        read_tokens(ModelSource(llama))
    Qwen2Config().save_pretrained(tmp_path / "qwen")  # for this one transformers makes up a tokenizer of one token
    with pytest.raises(UnreadableError, match="no tokenizer files"):
        read_tokens(ModelSource(str(tmp_path / "qwen")))


def test_code_beside_a_model_runs_only_where_it_is_trusted(tmp_path: Path) -> None:
    folder = copy_model(tmp_path / "draft", model_type="own", auto_map={"AutoConfig": "own.OwnConfig"})
    (tmp_path / "draft" / "own.py").write_text("raise SystemExit('ran')")
    with pytest.raises(UnreadableError, match=r"custom code|trust_remote_code"):
        read_facts(ModelSource(folder))
