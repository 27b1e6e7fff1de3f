"""A draft and a target that fit, and every way in which they do not."""

from pathlib import Path

import pytest

from tests.unit.proposers.draft_model.folders import copy_model, edit, name_end_token, swap_tokens
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.proposers.draft_model.config import DraftModelConfig
from vllm_spec_plugin.proposers.draft_model.pair import ModelSource, check_pair
from vllm_spec_plugin.proposers.section import Target
from vllm_spec_plugin.schema.errors import ConfigError

TARGET = ModelSource(str(model_path("target")))


def warnings_of(draft: str, target: ModelSource = TARGET, size: int = 1, max_model_len: int | None = None) -> list[str]:
    return check_pair(target, ModelSource(draft), size, max_model_len, "conf/spec.yaml")


def refusal_of(draft: str, target: ModelSource = TARGET, size: int = 1) -> str:
    """The one message, less the file and the key it begins with."""
    with pytest.raises(ConfigError) as caught:
        warnings_of(draft, target, size)
    message = str(caught.value)
    assert message.isprintable()
    assert "; allowed" in message
    start = "conf/spec.yaml: proposer.model: "
    assert message.startswith(start)
    return message.removeprefix(start)


def test_the_bundled_models_fit_and_nothing_is_asked_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.setattr(socket.socket, "connect", lambda *_, **__: pytest.fail("asked the network"))
    # A target may draft for itself.
    for draft in (str(model_path("draft")), TARGET.model):
        assert warnings_of(draft) == []


def test_a_config_that_cannot_be_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    message = refusal_of(copy_model(tmp_path / "draft", model_type="nonesuch"))
    assert message.startswith(f"the config of '{tmp_path}/draft' cannot be read: ")
    assert "nonesuch" in message


def test_a_name_that_is_neither_folder_nor_on_the_hub_says_both(monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    def from_pretrained(*_: object, **__: object) -> None:
        raise OSError(
            "org/none is not a valid model identifier listed on 'https://example.org'\nIf this is private, ..."
        )

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", from_pretrained)
    message = refusal_of("org/none")
    assert message.startswith(
        "there is no folder 'org/none' and the config of 'org/none' cannot be read: org/none is not"
    )
    assert "private" not in message


def test_another_vocabulary_size_is_refused_with_both(tmp_path: Path) -> None:
    draft = copy_model(tmp_path / "draft", vocab_size=1024)
    assert refusal_of(draft) == (
        f"'{draft}' has a vocabulary of 1,024 tokens, the target '{TARGET.model}' one of 2,048 (vocab_size in "
        "config.json); allowed: a draft model with 2,048; choose a model of the target's family, with the same "
        "tokenizer"
    )


def test_other_tokens_are_refused_with_the_first_ids_and_the_count(tmp_path: Path) -> None:
    draft = copy_model(tmp_path / "draft")
    swap_tokens(draft, ("a", "b"), ("c", "d"), ("e", "f"))
    ids = {token: 65 + ord(token) - ord("a") for token in "abc"}
    message = refusal_of(draft)
    assert message.startswith(f"6 of 2,048 token ids differ between '{draft}' and the target '{TARGET.model}': ")
    assert (
        f"{ids['a']} is 'b' in the draft model and 'a' in the target; {ids['b']} is 'a' in the draft model" in message
    )
    assert f"{ids['c']} is 'd'" in message
    assert "'e'" not in message
    assert "; ...; allowed: a draft model with the target's token ids; " in message


def test_the_targets_own_choice_of_tokenizer_counts(tmp_path: Path) -> None:
    other = copy_model(tmp_path / "other")
    swap_tokens(other, ("a", "b"))
    assert refusal_of(str(model_path("draft")), ModelSource(TARGET.model, tokenizer=other)).startswith("2 of 2,048")
    assert refusal_of(TARGET.model, ModelSource(TARGET.model, tokenizer=other)).startswith("2 of 2,048")
    assert warnings_of(other, ModelSource(TARGET.model, tokenizer=other)) == []


@pytest.mark.parametrize("which", ["target", "draft"])
def test_without_a_tokenizer_the_tokens_are_not_compared_and_that_is_said(tmp_path: Path, which: str) -> None:
    bare = copy_model(tmp_path / "bare", ("tokenizer.json", "tokenizer_config.json"))
    other = copy_model(tmp_path / "other")
    swap_tokens(other, ("a", "b"))
    target, draft = (bare, other) if which == "target" else (other, bare)
    [warning] = warnings_of(draft, ModelSource(target))
    assert warning.startswith(
        "conf/spec.yaml: proposer.model: the draft model's tokens are not compared with the target's: "
    )
    assert f"'{bare}'" in warning


def test_a_target_served_without_its_tokenizer_is_compared_by_its_config(tmp_path: Path) -> None:
    draft = copy_model(tmp_path / "draft")
    swap_tokens(draft, ("a", "b"))
    target = ModelSource(TARGET.model, skip_tokenizer=True)
    assert "served without one" in warnings_of(draft, target)[0]
    edit(tmp_path / "draft" / "config.json", vocab_size=99)
    assert "vocabulary of 99" in refusal_of(draft, target)


def test_a_token_that_only_one_knows_is_a_warning(tmp_path: Path) -> None:
    draft = copy_model(tmp_path / "draft", vocab_size=2049)
    target = ModelSource(copy_model(tmp_path / "target", vocab_size=2049))
    path = tmp_path / "target" / "tokenizer.json"
    text = path.read_text()
    added = '"added_tokens": ['
    assert added in text
    token = '{"id": 2048, "content": "<tool>", "single_word": false, "lstrip": false, "rstrip": false, '
    path.write_text(text.replace(added, added + token + '"normalized": false, "special": true},'))
    [warning] = warnings_of(draft, target)
    assert "1 token ids are in only one of the two tokenizers, such as 2048 '<tool>'" in warning


def end_with(folder: str, ids: int | list[int], token: str) -> str:
    edit(Path(folder) / "config.json", eos_token_id=ids)
    edit(Path(folder) / "generation_config.json", eos_token_id=ids)
    name_end_token(folder, token)
    return folder


def test_no_end_token_in_common_is_refused_with_both(tmp_path: Path) -> None:
    draft = end_with(copy_model(tmp_path / "draft"), 65, "a")
    assert refusal_of(draft).startswith(
        f"'{draft}' has the EOS tokens 65 'a', the target '{TARGET.model}' has 0 '<|endoftext|>' (eos_token_id in"
    )


@pytest.mark.parametrize("ids", [[0, 66], [65, 66, 0]])
def test_one_end_token_in_common_is_enough_and_the_rest_is_said(tmp_path: Path, ids: list[int]) -> None:
    # As a chat model's: the base model's end of text, and an end of turn that its tokenizer names.
    target = end_with(copy_model(tmp_path / "target"), ids, "b")
    [warning] = warnings_of(str(model_path("draft")), ModelSource(target))
    assert "has the EOS tokens 0 '<|endoftext|>', the target" in warning
    assert "66 'b': only the target's stop generation" in warning


def test_an_end_that_only_the_generation_config_tells_counts(tmp_path: Path) -> None:
    draft = end_with(copy_model(tmp_path / "draft"), 65, "a")
    edit(tmp_path / "draft" / "generation_config.json", eos_token_id=[0])
    assert len(warnings_of(draft)) == 1


@pytest.mark.parametrize(
    ("heads", "kv_heads", "size", "allowed"),
    [
        (6, 1, 4, "1, 2, 3"),
        (8, 2, 3, "1, 2"),
        (12, 4, 6, "1, 2, 4"),  # 6 is no multiple of 4, nor 4 of 6
    ],
)
def test_heads_that_cannot_be_split_are_refused_with_what_can(
    tmp_path: Path, heads: int, kv_heads: int, size: int, allowed: str
) -> None:
    draft = copy_model(tmp_path / "draft", num_attention_heads=heads, num_key_value_heads=kv_heads)
    message = refusal_of(draft, size=size)
    assert f"the {heads} attention heads and {kv_heads} KV heads of '{draft}'" in message
    assert f"tensor_parallel_size {size}; allowed with this draft model: {allowed}; " in message


@pytest.mark.parametrize(("heads", "kv_heads", "size"), [(6, 1, 3), (8, 2, 8), (8, 4, 2), (8, 8, 4)])
def test_heads_that_can_be_split_or_copied_pass(tmp_path: Path, heads: int, kv_heads: int, size: int) -> None:
    draft = copy_model(tmp_path / "draft", num_attention_heads=heads, num_key_value_heads=kv_heads)
    assert warnings_of(draft, size=size) == []


@pytest.mark.parametrize(
    ("context", "max_model_len", "stops"), [(512, 513, True), (512, 512, False), (512, None, True), (2048, None, False)]
)
def test_a_shorter_context_is_a_warning(tmp_path: Path, context: int, max_model_len: int | None, stops: bool) -> None:
    found = warnings_of(copy_model(tmp_path / "draft", max_position_embeddings=context), max_model_len=max_model_len)
    assert len(found) == stops
    if stops:
        served = max_model_len or 2048
        assert f"is 512 tokens, requests may have {served:,}: drafts end at token 512" in found[0]


def test_a_target_that_only_vllm_can_read_is_not_compared(tmp_path: Path) -> None:
    target = copy_model(tmp_path / "target", model_type="nonesuch")
    draft = copy_model(tmp_path / "draft", vocab_size=9)
    [warning] = warnings_of(draft, ModelSource(target))
    assert f"not compared with the target '{target}': its config cannot be read: " in warning
    with pytest.raises(ConfigError, match="heads"):
        warnings_of(draft, ModelSource(target), size=5)


def test_a_context_that_is_given_replaces_that_of_the_config():
    draft = ModelSource(str(model_path("draft")))
    (warning,) = check_pair(TARGET, draft, 1, 512, "conf/spec.yaml", 256)
    assert "drafts end at token 256" in warning
    assert check_pair(TARGET, draft, 1, 256, "conf/spec.yaml", 256) == []
    with pytest.raises(ConfigError, match=r"proposer.max_model_len: got 99999, but the context of .* is 2,048 tokens"):
        check_pair(TARGET, draft, 1, 512, "conf/spec.yaml", 99_999)


def test_revisions_of_a_folder_are_refused():
    config = DraftModelConfig(method="draft_model", model=str(model_path("draft")), revision="main", code_revision="x")
    with pytest.raises(
        ConfigError, match=r"2 mistakes:\n.*proposer.revision: got the text 'main', but proposer.model is"
    ):
        config.check(None, 4, "conf/spec.yaml")
    DraftModelConfig(method="draft_model", model="org/small", revision="main").check(None, 4, "conf/spec.yaml")


def test_revisions_reach_the_reading_of_the_config(monkeypatch):
    seen = []

    def check(target, draft, *rest):
        seen.append((draft, rest))
        return []

    monkeypatch.setattr("vllm_spec_plugin.proposers.draft_model.pair.check_pair", check)
    config = DraftModelConfig(
        method="draft_model", model="org/small", revision="r", code_revision="c", max_model_len=99
    )
    source = ModelSource("org/large", trust_remote_code=True)
    config.check(Target(source, 2, 512), 4, "conf/spec.yaml")
    draft = ModelSource("org/small", revision="r", trust_remote_code=True, code_revision="c")
    assert seen == [(draft, (2, 512, "conf/spec.yaml", 99))]
    assert draft.code == {"trust_remote_code": True, "code_revision": "c"}
    assert ModelSource("org/small").code == {"trust_remote_code": False}
