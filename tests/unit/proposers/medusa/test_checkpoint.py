"""Folders of heads: both layouts, and every way in which one is broken."""

import json
import re
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
from vllm_spec_plugin.proposers.medusa.checkpoint import (
    MedusaCheckpointError,
    load_heads,
    read_heads_config,
    save_heads,
)
from vllm_spec_plugin.proposers.medusa.heads import MedusaHeads


def load(folder: str, hidden: int = HIDDEN, vocabulary: int = VOCABULARY, num_heads: int | None = None) -> MedusaHeads:
    return load_heads(folder, hidden, vocabulary, torch.float32, "cpu", num_heads)


def refusal_of(folder: str, **options: Any) -> str:
    with pytest.raises(MedusaCheckpointError) as caught:
        load(folder, **options)
    message = str(caught.value)
    assert message.isprintable()
    assert "allowed: " in message
    return message


@pytest.mark.parametrize("file", ["medusa_lm_head.pt", "medusa_lm_head.safetensors", "model.safetensors"])
@pytest.mark.parametrize("prefix", ["", "medusa_head.", "medusa_heads."])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_the_original_layout_says_what_a_plain_implementation_says(
    tmp_path: Path, num_layers: int, prefix: str, file: str
) -> None:
    state = random_state(3, num_layers, prefix)
    folder = write(tmp_path, state, original_config(3, num_layers), file)
    hidden = torch.randn(4, HIDDEN, generator=torch.Generator().manual_seed(1))
    plain = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    torch.testing.assert_close(load(folder)(hidden), plain_logits(plain, hidden, 3, num_layers))


def test_the_older_format_of_torch_files_is_read(tmp_path: Path) -> None:
    folder = write(tmp_path, {}, original_config())
    torch.save(random_state(), tmp_path / "medusa_lm_head.pt", _use_new_zipfile_serialization=False)
    assert load(folder).num_heads == 3


def test_sizes_come_from_the_tensors_where_the_config_has_none(tmp_path: Path) -> None:
    config = read_heads_config(write(tmp_path, random_state(3, 2), original_config(3, 2)))
    assert (config.num_heads, config.num_layers, config.hidden_size, config.vocab_size) == (3, 2, HIDDEN, VOCABULARY)
    assert config.base_model == "lmsys/vicuna-7b-v1.3"
    assert (config.accuracy, config.paths, config.measured_on, config.provenance) == (None,) * 4


def test_fewer_heads_may_be_loaded(tmp_path: Path) -> None:
    folder = write(tmp_path, random_state(3), original_config())
    hidden = torch.ones(1, HIDDEN)
    two = load(folder, num_heads=2)
    assert two.num_heads == 2
    torch.testing.assert_close(two(hidden), load(folder)(hidden)[:2])


def test_tensors_of_the_model_itself_may_lie_beside_prefixed_heads(tmp_path: Path) -> None:
    state = random_state(3, 1, "medusa_head.") | {"lm_head.weight": torch.ones(2, 2)}
    assert load(write(tmp_path, state, original_config())).num_heads == 3


def measured() -> dict[str, Any]:
    return {
        "accuracy": [[0.5, 0.25] + [0.0] * 8] * 3,
        "paths": {"greedy": [[[0], 0.5], [[1], 0.25], [[0, 0], 0.25], [[0, 0, 2], 0.125]], "drawn": []},
        "measured_on": "own text",
        "provenance": {"seconds": 1.5},
        "base_model_name_or_path": "a/b",
    }


@pytest.mark.parametrize("num_layers", [1, 2])
def test_what_is_saved_is_what_is_loaded(tmp_path: Path, num_layers: int) -> None:
    heads = load(write(tmp_path / "a", random_state(3, num_layers), original_config(3, num_layers)))
    save_heads(heads, tmp_path / "b", measured(), torch.float32)
    again = load(str(tmp_path / "b"))
    for (name, before), after in zip(heads.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(before, after), name
    config = read_heads_config(str(tmp_path / "b"))
    assert config.accuracy == ((0.5, 0.25, *[0.0] * 8),) * 3
    assert config.paths == {"greedy": {(0,): 0.5, (1,): 0.25, (0, 0): 0.25, (0, 0, 2): 0.125}, "drawn": {}}
    assert (config.measured_on, config.provenance, config.base_model) == ("own text", {"seconds": 1.5}, "a/b")
    assert json.loads((tmp_path / "b" / "config.json").read_text())["vocab_size"] == VOCABULARY


def test_saved_weights_are_rounded_to_the_dtype(tmp_path: Path) -> None:
    heads = load(write(tmp_path / "a", random_state(), original_config()))
    save_heads(heads, tmp_path / "b", {}, torch.float16)
    assert torch.equal(load(str(tmp_path / "b")).projection, heads.projection.half().float())


def test_no_such_folder_says_that_the_hub_has_none_either(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def snapshot_download(name: str, allow_patterns: list[str]) -> str:
        assert name == "no/such"
        raise OSError("we could not find it\nat all")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert refusal_of("no/such").startswith("there is no folder 'no/such', and it cannot be downloaded: we could not ")


def test_a_hub_name_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    folder = write(tmp_path, random_state(), original_config())
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, allow_patterns: folder)
    assert load("some/heads").num_heads == 3


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "heads.pt"
    path.write_text("")
    assert "not a folder" in refusal_of(str(path))


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    assert "has no config.json" in refusal_of(write(tmp_path, random_state(), None))


class Anything:
    pass


def test_a_torch_file_that_could_run_code_is_not_opened(tmp_path: Path) -> None:
    folder = write(tmp_path, {"0.0.linear.weight": Anything()}, original_config())
    assert "is not a plain state dict" in refusal_of(folder)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04 half a zip"])
@pytest.mark.parametrize("file", ["medusa_lm_head.pt", "medusa_lm_head.safetensors"])
def test_a_broken_file_is_refused(tmp_path: Path, file: str, content: bytes) -> None:
    write(tmp_path, {}, original_config())
    (tmp_path / "medusa_lm_head.pt").unlink()
    (tmp_path / file).write_bytes(content)
    assert file in refusal_of(str(tmp_path))


def test_a_file_without_heads_names_what_it_holds(tmp_path: Path) -> None:
    assert "has no Medusa heads, but lm_head.weight" in refusal_of(
        write(tmp_path, {"lm_head.weight": torch.ones(1)}, original_config())
    )


@pytest.mark.parametrize("name", ["0.0.linear.weight", "1.0.linear.bias", "2.1.weight", "1.1.weight"])
def test_a_missing_tensor_is_named(tmp_path: Path, name: str) -> None:
    state = random_state()
    del state[name]
    assert "is missing" in refusal_of(write(tmp_path, state, original_config()))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("1.0.linear.weight", (HIDDEN, 5)),
        ("0.0.linear.bias", (5,)),
        ("2.1.weight", (VOCABULARY, 5)),
        ("0.1.weight", (5,)),
    ],
)
def test_a_tensor_of_another_shape_is_named(tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    message = refusal_of(write(tmp_path, random_state() | {name: torch.ones(shape)}, original_config()))
    assert f"tensor '{name}' has the shape {list(shape)}" in message


def test_a_projection_with_a_bias_is_refused(tmp_path: Path) -> None:
    message = refusal_of(write(tmp_path, random_state() | {"0.1.bias": torch.ones(VOCABULARY)}, original_config()))
    assert "unknown tensor '0.1.bias'" in message


@pytest.mark.parametrize(("options", "what"), [({"hidden": 16}, "hidden size"), ({"vocabulary": 31}, "vocabulary")])
def test_heads_for_another_target_name_both_sizes(tmp_path: Path, options: dict[str, int], what: str) -> None:
    message = refusal_of(write(tmp_path, random_state(), original_config()), **options)
    found = {"hidden size": HIDDEN, "vocabulary": VOCABULARY}[what]
    assert f"have a {what} of {found}, the target one of {next(iter(options.values()))}" in message


def test_too_few_heads_name_both_numbers(tmp_path: Path) -> None:
    message = refusal_of(write(tmp_path, random_state(), original_config()), num_heads=4)
    assert "has 3 heads, drafts of 4 tokens need 4" in message


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ([], "got a list"),
        ({"medusa_num_heads": 4}, "medusa_num_heads: got 4; allowed: 3"),
        ({"medusa_num_heads": "three"}, "medusa_num_heads: got the text 'three'; allowed: 3"),
        ({"medusa_num_layers": 2}, "medusa_num_layers: got 2; allowed: 1"),
        ({"hidden_size": 13}, "hidden_size: got 13; allowed: 12"),
        ({"vocab_size": 13}, "vocab_size: got 13; allowed: 30"),
        ({"accuracy": [[0.1]]}, "accuracy: allowed: 3 lists"),
        ({"accuracy": [[0.2] * 10] * 3}, "accuracy: allowed: 3 lists"),
        ({"paths": {"greedy": [[[0, 0], 0.1]]}}, "paths: allowed: greedy, sampled and drawn, each pairs"),
        ({"paths": {"drawn": [[[10], 0.1]]}}, "paths: allowed: greedy"),
        ({"paths": {"sampled": [[[0], 1.1]]}}, "paths: allowed: greedy"),
        ({"paths": {"other": [[[0], 0.1]]}}, "paths: allowed: greedy"),
        ({"paths": [[[0], 0.1]]}, "paths: allowed: greedy"),
        ({"paths": "none"}, "paths: allowed: greedy"),
    ],
)
def test_a_config_that_does_not_go_with_the_tensors_is_refused(tmp_path: Path, config: Any, text: str) -> None:
    folder = write(tmp_path, random_state(), config)
    assert text in refusal_of(folder)


def test_a_config_that_is_no_json_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, random_state(), original_config())
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(MedusaCheckpointError, match=re.escape("config.json': not JSON")):
        load(folder)
