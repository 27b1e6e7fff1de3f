"""Folders of heads: both layouts, every way in which one is broken, and targets that one does not fit."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.proposers.medusa.folders import (
    HIDDEN,
    VOCABULARY,
    original_config,
    plain_logits,
    random_state,
    write,
)
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.proposers.medusa.check import check_heads
from vllm_spec_plugin.proposers.medusa.checkpoint import load_heads, read_heads_config, save_heads
from vllm_spec_plugin.proposers.medusa.heads import MedusaHeads
from vllm_spec_plugin.proposers.model_files import UnreadableError
from vllm_spec_plugin.proposers.model_source import ModelSource
from vllm_spec_plugin.schema.errors import ConfigError


def load(folder: str, hidden: int = HIDDEN, vocabulary: int = VOCABULARY, num_heads: int | None = None) -> MedusaHeads:
    return load_heads(folder, hidden, vocabulary, torch.float32, "cpu", num_heads)


def refusal_of(folder: str, **options: Any) -> str:
    with pytest.raises(UnreadableError) as caught:
        load(folder, **options)
    message = str(caught.value)
    assert message.isprintable()
    assert "allowed: " in message or "not JSON" in message
    return message


@pytest.mark.parametrize("file", ["medusa_lm_head.pt", "medusa_lm_head.safetensors", "model.safetensors"])
@pytest.mark.parametrize("prefix", ["", "medusa_head.", "medusa_heads."])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_the_original_layout_says_what_a_plain_implementation_says(
    tmp_path: Path, num_layers: int, prefix: str, file: str
) -> None:
    """Also beside tensors of the model itself, and where fewer heads are loaded."""
    state = random_state(3, num_layers, prefix)
    plain = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    others = {"lm_head.weight": torch.ones(2, 2)} if prefix else {}
    folder = write(tmp_path, state | others, original_config(3, num_layers), file)
    hidden = torch.randn(4, HIDDEN, generator=torch.Generator().manual_seed(1))
    expected = plain_logits(plain, hidden, 3, num_layers)
    torch.testing.assert_close(load(folder)(hidden), expected)
    torch.testing.assert_close(load(folder, num_heads=2)(hidden), expected[:2])
    config = read_heads_config(folder)
    assert (config.num_heads, config.num_layers, config.hidden_size) == (3, num_layers, HIDDEN)
    assert (config.vocab_size, config.base_model) == (VOCABULARY, "lmsys/vicuna-7b-v1.3")


def test_a_hub_name_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    folder = write(tmp_path, random_state(), original_config())

    def snapshot_download(name: str, allow_patterns: list[str]) -> str:
        if name == "no/such":
            raise OSError("we could not find it\nat all")
        return folder

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert load("some/heads").num_heads == 3
    assert refusal_of("no/such").startswith("there is no folder 'no/such', and it cannot be downloaded: we could not ")


@pytest.mark.parametrize("num_layers", [1, 2])
def test_what_is_saved_is_what_is_loaded(tmp_path: Path, num_layers: int) -> None:
    heads = load(write(tmp_path / "a", random_state(3, num_layers), original_config(3, num_layers)))
    measured = {
        "accuracy": [[0.5, 0.25] + [0.0] * 8] * 3,
        "paths": {"greedy": [[[0], 0.5], [[1], 0.25], [[0, 0], 0.25], [[0, 0, 2], 0.125]], "drawn": []},
        "measured_on": "own text",
        "provenance": {"seconds": 1.5},
        "base_model_name_or_path": "a/b",
    }
    save_heads(heads, tmp_path / "b", measured, torch.float32)
    again = load(str(tmp_path / "b"))
    for (name, before), after in zip(heads.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(before, after), name
    config = read_heads_config(str(tmp_path / "b"))
    assert config.accuracy == ((0.5, 0.25, *[0.0] * 8),) * 3
    assert config.paths == {"greedy": {(0,): 0.5, (1,): 0.25, (0, 0): 0.25, (0, 0, 2): 0.125}, "drawn": {}}
    assert (config.measured_on, config.provenance, config.base_model) == ("own text", {"seconds": 1.5}, "a/b")
    save_heads(heads, tmp_path / "half", {}, torch.float16)
    assert torch.equal(load(str(tmp_path / "half")).projection, heads.projection.half().float())


class Anything:
    pass


ONE = torch.ones(1)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"0.0.linear.weight": Anything()}, "is not a plain state dict"),
        ({**dict.fromkeys(random_state()), "lm_head.weight": ONE}, "has no Medusa heads, but lm_head.weight"),
        ({"0.1.bias": ONE}, "unknown tensor '0.1.bias'"),
        *(({name: None}, "is missing") for name in ("0.0.linear.weight", "1.0.linear.bias", "2.1.weight")),
        ({"1.0.linear.weight": torch.ones(HIDDEN, 5)}, "tensor '1.0.linear.weight' has the shape [12, 5]"),
        ({"0.0.linear.bias": torch.ones(5)}, "tensor '0.0.linear.bias' has the shape [5]"),
        ({"2.1.weight": torch.ones(VOCABULARY, 5)}, "tensor '2.1.weight' has the shape [30, 5]"),
    ],
)
def test_tensors_that_cannot_be_used_are_named(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    state = {name: tensor for name, tensor in (random_state() | changes).items() if tensor is not None}
    assert text in refusal_of(write(tmp_path, state, original_config()))


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04 half a zip"])
@pytest.mark.parametrize("file", ["medusa_lm_head.pt", "medusa_lm_head.safetensors"])
def test_a_broken_file_is_refused(tmp_path: Path, file: str, content: bytes) -> None:
    (tmp_path / "config.json").write_text(json.dumps(original_config()))
    (tmp_path / file).write_bytes(content)
    assert file in refusal_of(str(tmp_path))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"hidden": 16}, "have a hidden size of 12, the target one of 16"),
        ({"vocabulary": 31}, "have a vocabulary of 30, the target one of 31"),
        ({"num_heads": 4}, "has 3 heads, drafts of 4 tokens need 4"),
    ],
)
def test_heads_for_another_target_name_both_numbers(tmp_path: Path, options: dict[str, int], text: str) -> None:
    assert text in refusal_of(write(tmp_path, random_state(), original_config()), **options)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ("[]", "config.json"),
        ("{", "config.json"),
        ({"medusa_num_heads": 4}, "medusa_num_heads"),
        ({"medusa_num_heads": "three"}, "medusa_num_heads"),
        ({"medusa_num_layers": 2}, "medusa_num_layers"),
        ({"hidden_size": 13}, "hidden_size"),
        ({"vocab_size": 13}, "vocab_size"),
        ({"accuracy": [[0.1]]}, "accuracy"),
        ({"accuracy": [[0.2] * 10] * 3}, "accuracy"),
        ({"paths": {"greedy": [[[0, 0], 0.1]]}}, "paths"),
        ({"paths": {"drawn": [[[10], 0.1]]}}, "paths"),
        ({"paths": {"sampled": [[[0], 1.1]]}}, "paths"),
        ({"paths": {"other": [[[0], 0.1]]}}, "paths"),
        ({"paths": "none"}, "paths"),
    ],
)
def test_a_config_that_does_not_go_with_the_tensors_is_refused(tmp_path: Path, config: Any, key: str) -> None:
    folder = write(tmp_path, random_state(), None)
    assert "has no config.json" in refusal_of(folder)
    (tmp_path / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    assert f"{key}: " in refusal_of(folder).replace("'", "")
    assert "not a folder" in refusal_of(str(tmp_path / "config.json"))


def test_a_target_is_compared_where_it_can_be_read(tmp_path: Path) -> None:
    """Else the number of heads is still checked."""
    own = ModelSource(str(model_path("target")))
    save_heads(MedusaHeads(256, 2048, 2, 1), tmp_path / "fit", {}, torch.float16)
    assert check_heads(own, str(tmp_path / "fit"), 2, "spec.yaml") == []
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nonesuch"}))
    heads = write(tmp_path / "heads", random_state(), original_config())
    (warning,) = check_heads(ModelSource(str(tmp_path)), heads, 3, "spec.yaml")
    assert warning.startswith(f"spec.yaml: proposer.model: not compared with the target '{tmp_path}'")
    for target, folder, said in ((ModelSource(str(tmp_path)), heads, "need 4"), (own, str(tmp_path), "has no weights")):
        with pytest.raises(ConfigError, match=rf"^spec\.yaml: proposer\.model: .*{said}.*; allowed: "):
            check_heads(target, folder, 4, "spec.yaml")
