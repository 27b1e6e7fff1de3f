"""Weight files are checked by their headers, and what was not checked is said."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from vllm_spec_plugin.proposers.model_files import INDEX, UnreadableError
from vllm_spec_plugin.proposers.model_source import ModelSource
from vllm_spec_plugin.proposers.weight_files import check_weights


def write(folder: Path, **files: Mapping[str, torch.Tensor]) -> ModelSource:
    """Writes files of tensors, and the index that names them all."""
    index = {tensor: f"{name}.safetensors" for name, tensors in files.items() for tensor in tensors}
    for name, tensors in files.items():
        save_file(dict(tensors), folder / f"{name}.safetensors")
    (folder / INDEX).write_text(json.dumps({"weight_map": index}))
    return ModelSource(str(folder))


@pytest.fixture
def model(tmp_path: Path) -> ModelSource:
    return write(tmp_path, a={"model.embed_tokens.weight": torch.zeros(8, 2)}, b={"lm_head.weight": torch.zeros(8, 2)})


def test_whole_files_are_checked(model: ModelSource) -> None:
    assert check_weights(model, "auto") == ""


@pytest.mark.parametrize("keep", [0, 4, 40, -1])
def test_each_file_of_the_index_is_looked_at(model: ModelSource, tmp_path: Path, keep: int) -> None:
    path = tmp_path / "b.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UnreadableError, match=r"b\.safetensors': cannot be read"):
        check_weights(model, "auto")
    path.unlink()
    with pytest.raises(UnreadableError, match=r"b\.safetensors', which is not there"):
        check_weights(model, "auto")


def test_a_tensor_of_the_index_that_is_nowhere(model: ModelSource, tmp_path: Path) -> None:
    save_file({"other": torch.zeros(1)}, tmp_path / "b.safetensors")
    with pytest.raises(UnreadableError, match=r"b\.safetensors': lacks the tensor 'lm_head\.weight'"):
        check_weights(model, "auto")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"weight_map": [1]}'])
def test_a_damaged_index(model: ModelSource, tmp_path: Path, content: str) -> None:
    (tmp_path / INDEX).write_text(content)
    with pytest.raises(UnreadableError, match=r"index\.json': (not JSON|got a list|has no weight_map)"):
        check_weights(model, "auto")


def test_an_embedding_of_another_vocabulary(model: ModelSource, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "vocab_size": 9}')
    with pytest.raises(UnreadableError, match="has 8 rows; allowed: 9, the vocab_size in config"):
        check_weights(model, "auto")


def test_what_is_not_checked_is_said(tmp_path: Path) -> None:
    hub = ModelSource("no-such-org/no-such-model")
    assert check_weights(hub, "auto") == "the weights of 'no-such-org/no-such-model', which are not downloaded"
    assert "--load-format dummy" in check_weights(ModelSource(str(tmp_path)), "dummy")
    (tmp_path / "pytorch_model.bin").touch()
    assert "which are not in safetensors" in check_weights(ModelSource(str(tmp_path)), "auto")
