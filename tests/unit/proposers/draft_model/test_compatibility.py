"""A draft and a target that fit, and every way in which they do not."""

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.unit.proposers.draft_model.folders import copy_model, edit, name_end_token, swap_tokens
from tests.unit.proposers.refusals import refusal
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.proposers.draft_model.compatibility import ModelSource, check_pair
from vllm_spec_plugin.proposers.draft_model.config import DraftModelConfig
from vllm_spec_plugin.schema.errors import ConfigError

DRAFT, TARGET = str(model_path("draft")), ModelSource(str(model_path("target")))
START = "conf/spec.yaml: proposer.model: "
NO_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


def warnings_of(
    draft: str,
    target: ModelSource = TARGET,
    size: int = 1,
    max_model_len: int | None = None,
    draft_max_len: int | None = None,
) -> list[str]:
    found = check_pair(target, ModelSource(draft), size, max_model_len, "conf/spec.yaml", draft_max_len)
    assert all(warning.startswith(START) for warning in found)
    return [warning.removeprefix(START) for warning in found]


def refusal_of(draft: str, target: ModelSource = TARGET, size: int = 1) -> str:
    return refusal(warnings_of, draft, target, size, start=START)


def test_the_bundled_models_fit_and_nothing_is_asked_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target may draft for itself."""
    monkeypatch.setattr(socket.socket, "connect", lambda *_, **__: pytest.fail("asked the network"))
    for draft in (DRAFT, TARGET.model):
        assert warnings_of(draft) == []


@pytest.mark.parametrize(
    ("config", "size", "said"),
    [
        ({"model_type": "nonesuch"}, 1, "the config of 'DRAFT' cannot be read: "),
        ({"vocab_size": 1024}, 1, "'DRAFT' has a vocabulary of 1,024 tokens, the target 'TARGET' one of 2,048"),
        # 6 is no multiple of 4, nor 4 of 6.
        ({"num_attention_heads": 12, "num_key_value_heads": 4}, 6, "the 12 attention heads and 4 KV heads of 'DRAFT'"),
        ({"num_attention_heads": 6, "num_key_value_heads": 1}, 4, "allowed with this draft model: 1, 2, 3; "),
        ({"num_attention_heads": 8, "num_key_value_heads": 2}, 3, "tensor_parallel_size 3; allowed with this draft"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(tmp_path: Path, config: dict[str, Any], size: int, said: str) -> None:
    draft = copy_model(tmp_path / "draft", **config)
    assert said.replace("DRAFT", draft).replace("TARGET", TARGET.model) in refusal_of(draft, size=size)


@pytest.mark.parametrize(("heads", "kv_heads", "size"), [(6, 1, 3), (8, 2, 8), (8, 4, 2), (8, 8, 4)])
def test_heads_that_can_be_split_or_copied_pass(tmp_path: Path, heads: int, kv_heads: int, size: int) -> None:
    draft = copy_model(tmp_path / "draft", num_attention_heads=heads, num_key_value_heads=kv_heads)
    assert warnings_of(draft, size=size) == []


def test_other_tokens_are_refused_with_the_first_ids_and_the_count(tmp_path: Path) -> None:
    draft = copy_model(tmp_path / "draft")
    swap_tokens(draft, ("a", "b"), ("c", "d"), ("e", "f"))
    message = refusal_of(draft)
    assert message.startswith(f"6 of 2,048 token ids differ between '{draft}' and the target '{TARGET.model}': 65 is ")
    assert "65 is 'b' in the draft model and 'a' in the target; 66 is 'a' in the draft model" in message
    assert "67 is 'd'" in message
    assert "'e'" not in message
    assert "; ...; allowed: a draft model with the target's token ids; " in message


@pytest.mark.parametrize("which", ["target", "draft", "served without one"])
def test_without_a_tokenizer_the_tokens_are_not_compared_and_that_is_said(tmp_path: Path, which: str) -> None:
    bare, other = copy_model(tmp_path / "bare", NO_TOKENIZER), copy_model(tmp_path / "other")
    swap_tokens(other, ("a", "b"))
    target, draft = (other, bare) if which == "draft" else (bare, other)
    skips = which == "served without one"
    source = ModelSource(TARGET.model if skips else target, skip_tokenizer=skips)
    [warning] = warnings_of(draft, source)
    assert warning.startswith("the draft model's tokens are not compared with the target's: ")
    assert (which if skips else f"'{bare}'") in warning
    # By its config all the same.
    edit(Path(draft) / "config.json", vocab_size=99)
    assert "vocabulary of 99" in refusal_of(draft, source)


def end_with(folder: str, ids: int | list[int], token: str) -> str:
    edit(Path(folder) / "config.json", eos_token_id=ids)
    edit(Path(folder) / "generation_config.json", eos_token_id=ids)
    name_end_token(folder, token)
    return folder


def test_no_end_token_in_common_is_refused_with_both(tmp_path: Path) -> None:
    """An end that only the generation config tells counts."""
    draft = end_with(copy_model(tmp_path / "draft"), 65, "a")
    said = f"'{draft}' has the EOS tokens 65 'a', the target '{TARGET.model}' has 0 '<|endoftext|>'"
    assert refusal_of(draft).startswith(said)
    edit(tmp_path / "draft" / "generation_config.json", eos_token_id=[0])
    assert len(warnings_of(draft)) == 1


@pytest.mark.parametrize("ids", [[0, 66], [65, 66, 0]])
def test_one_end_token_in_common_is_enough_and_the_rest_is_said(tmp_path: Path, ids: list[int]) -> None:
    """As a chat model's: the base model's end of text, and an end of turn that its tokenizer names."""
    target = end_with(copy_model(tmp_path / "target"), ids, "b")
    [warning] = warnings_of(DRAFT, ModelSource(target))
    assert "has the EOS tokens 0 '<|endoftext|>', the target" in warning
    assert "66 'b': only the target's stop generation" in warning


@pytest.mark.parametrize(
    ("context", "max_model_len", "given", "stops"),
    [
        (512, 513, None, 512),
        (512, 512, None, None),
        (512, None, None, 512),
        (2048, None, None, None),
        (2048, 512, 256, 256),
        (2048, 256, 256, None),
    ],
)
def test_a_shorter_context_is_a_warning(
    tmp_path: Path, context: int, max_model_len: int | None, given: int | None, stops: int | None
) -> None:
    """The draft model's own, or the one that is given."""
    draft = copy_model(tmp_path / "draft", max_position_embeddings=context)
    found = warnings_of(draft, TARGET, 1, max_model_len, given)
    said = f"is {stops} tokens, requests may have {max_model_len or 2048:,}: drafts end at token {stops}"
    assert [said in warning for warning in found] == [True] * (stops is not None)


def test_a_context_beyond_the_draft_models_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"proposer.max_model_len: got 99999, but the context of .* is 2,048 tokens"):
        warnings_of(DRAFT, TARGET, 1, 512, 99_999)


def test_a_target_that_only_vllm_can_read_is_not_compared(tmp_path: Path) -> None:
    target = copy_model(tmp_path / "target", model_type="nonesuch")
    draft = copy_model(tmp_path / "draft", vocab_size=9)
    [warning] = warnings_of(draft, ModelSource(target))
    assert f"not compared with the target '{target}': its config cannot be read: " in warning
    with pytest.raises(ConfigError, match="heads"):
        warnings_of(draft, ModelSource(target), size=5)


def test_revisions_of_a_folder_are_refused() -> None:
    config = DraftModelConfig(method="draft_model", model=DRAFT, revision="main", code_revision="x")
    said = r"2 mistakes:\n.*proposer.revision: got the text 'main', but proposer.model is"
    with pytest.raises(ConfigError, match=said):
        config.check(None, 4, "conf/spec.yaml")
    DraftModelConfig(method="draft_model", model="org/small", revision="main").check(None, 4, "conf/spec.yaml")
