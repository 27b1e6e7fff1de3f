"""A widened model computes what the narrow one does, and a failure leaves nothing behind."""

import errno
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.demo import widen as module
from vllm_spec_tools.demo.widen import widen

HIDDEN, NEURONS, LAYERS = 32, 96, 3
SHAPE = {
    "vocab_size": 64,
    "hidden_size": HIDDEN,
    "intermediate_size": NEURONS,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "initializer_range": 0.2,  # so that the MLPs matter and the likeliest token is clear
}
MODEL, INDEX = "model.safetensors", "model.safetensors.index.json"


def make(folder: Path, config: Any = LlamaConfig, shard: str = "5GB", dtype: Any = torch.float32, **keys: Any) -> Path:
    """A random model; its biases are random too."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config(**{**SHAPE, **keys}), dtype=dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_()
    model.save_pretrained(folder, max_shard_size=shard)
    return folder


def load(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder).eval()


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for path in folder.glob("*.safetensors") for name, tensor in load_file(path).items()}


def contents(folder: Path) -> dict[str, bytes]:
    """Everything in a folder and below."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def change_config(model: Path, **keys: Any) -> None:
    path = model / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))


def change_tensors(model: Path, changes: Mapping[str, torch.Tensor | None]) -> None:
    """Replaces, adds or (None) removes tensors of a model in one file."""
    kept = {**load_file(model / MODEL), **changes}
    save_file({name: tensor for name, tensor in kept.items() if tensor is not None}, model / MODEL)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make(tmp_path / "model")


def assert_same_function(narrow: Path, wide: Path) -> tuple[Any, Any]:
    before, after = load(narrow), load(wide)
    prompt = torch.tensor([[1, 5, 9], [7, 3, 60]])
    with torch.no_grad():
        texts = [one.generate(prompt, max_new_tokens=8, do_sample=False, pad_token_id=0) for one in (before, after)]
        torch.testing.assert_close(after(texts[0]).logits, before(texts[0]).logits, rtol=0, atol=1e-6)
    assert torch.equal(*texts)
    return before, after


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("shard", ["5GB", "40KB"])
def test_logits_and_greedy_text_stay_and_parameters_are_as_told(tmp_path: Path, tied: bool, shard: str) -> None:
    model = make(tmp_path / "model", shard=shard, tie_word_embeddings=tied)
    assert (model / INDEX).exists() == (shard == "40KB")
    figures = widen(model, tmp_path / "out", intermediate_size=256)
    before, after = assert_same_function(model, tmp_path / "out")
    assert after.config.intermediate_size == figures.intermediate_size_after == 256
    assert figures.intermediate_size_before == NEURONS
    assert figures.parameters_before == before.num_parameters()
    assert figures.parameters_after == after.num_parameters()
    assert figures.bytes_on_disk == sum(map(len, contents(tmp_path / "out").values()))
    same = (after.lm_head.weight.data_ptr() == after.model.embed_tokens.weight.data_ptr()) is tied
    assert same
    assert ("lm_head.weight" in tensors(tmp_path / "out")) is not tied


@pytest.mark.parametrize(
    ("config", "keys"),
    [(LlamaConfig, {"mlp_bias": True}), (Qwen2Config, {}), (Qwen3Config, {"head_dim": 16}), (MistralConfig, {})],
)
def test_other_architectures_and_biases(tmp_path: Path, config: Any, keys: dict[str, Any]) -> None:
    model = make(tmp_path / "model", config, **keys)
    figures = widen(model, tmp_path / "out", intermediate_size=130)
    _, after = assert_same_function(model, tmp_path / "out")
    assert figures.parameters_after == after.num_parameters()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_are_kept_to_the_bit_and_the_rest_is_zero(tmp_path: Path, dtype: torch.dtype) -> None:
    model = make(tmp_path / "model", dtype=dtype)
    widen(model, tmp_path / "out", intermediate_size=128)
    before, after = tensors(model), tensors(tmp_path / "out")
    assert before.keys() == after.keys()
    for name, old in before.items():
        new = after[name]
        assert new.dtype == old.dtype == dtype
        assert torch.equal(new[tuple(slice(length) for length in old.shape)], old)
        assert new.count_nonzero() == old.count_nonzero()
        assert (new.shape != old.shape) == (".mlp." in name)


def test_everything_but_other_weights_is_copied(model: Path, tmp_path: Path) -> None:
    kept = {"tokenizer.json": b"{}", "chat_template.jinja": b"\xff\x00", "extra/deep/note.txt": b"x"}
    left = {"pytorch_model.bin": b"w", "consolidated.safetensors": b"w", "pytorch_model.bin.index.json": b"{}"}
    for name, data in {**kept, **left, ".cache/x": b"", ".git/x": b""}.items():
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        (model / name).write_bytes(data)
    before = contents(model)
    widen(model, tmp_path / "out", intermediate_size=128)
    assert contents(model) == before
    after = contents(tmp_path / "out")
    own = {"config.json", MODEL}
    assert {name: data for name, data in after.items() if name not in own} == {
        **kept,
        "generation_config.json": before["generation_config.json"],
    }
    config = json.loads(before["config.json"])
    assert json.loads(after["config.json"]) == {**config, "intermediate_size": 128}
    modes = {name: (tmp_path / "out" / name).stat().st_mode for name in own}
    assert len(set(modes.values())) == 1


@pytest.mark.parametrize("keys", [{}, {"mlp_bias": True}, {"intermediate_size": 100}])
def test_the_size_for_a_parameter_count_is_the_smallest_multiple_of_64(tmp_path: Path, keys: dict[str, Any]) -> None:
    model = make(tmp_path / "model", **keys)
    at = {size: widen(model, tmp_path / f"{size}", intermediate_size=size).parameters_after for size in (128, 192)}
    has = load(model).num_parameters()
    for wanted, size in ((has, 128), (at[128], 128), (at[128] + 1, 192), (at[192], 192)):
        assert widen(model, tmp_path / f"for {wanted}", parameters=wanted).intermediate_size_after == size
    with pytest.raises(UserError, match=rf"got {has - 1:,} parameters to reach; allowed: from {has:,}, what it has$"):
        widen(model, tmp_path / "less", parameters=has - 1)


def test_a_smaller_size_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"got 95 as the new intermediate_size; allowed: from 96, what it has$"):
        widen(model, tmp_path / "out", intermediate_size=95)
    assert widen(model, tmp_path / "out", intermediate_size=96).parameters_after == load(model).num_parameters()


def test_a_failure_leaves_what_was_there_and_no_more(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "save_file", full)
    with pytest.raises(UserError, match=r"out: cannot be written: No space left on device$"):
        widen(model, tmp_path / "out", intermediate_size=192)
    assert {path.name for path in tmp_path.iterdir()} == {"model"}


def test_folders_that_hold_anything_are_not_written_to(model: Path, tmp_path: Path) -> None:
    out, file = tmp_path / "out", tmp_path / "file"
    out.mkdir()
    widen(model, out, intermediate_size=128)
    before = contents(out)
    file.write_text("x")
    for taken, message in (
        (out, "is a file or not empty; allowed: a folder, new or empty$"),
        (file, "is a file or not empty; allowed: a folder, new or empty$"),
        (model, "overlaps the model to widen"),
        (model.parent, "overlaps the model to widen"),
        (model / "inside", "overlaps the model to widen"),
    ):
        with pytest.raises(UserError, match=message):
            widen(model, taken, intermediate_size=192)
    assert contents(out) == before


LAYER = "model.layers.1.mlp"
NO_MLP = {f"model.layers.{n}.mlp.{part}_proj.weight": None for n in range(LAYERS) for part in ("gate", "up", "down")}
FLOAT8 = torch.zeros(NEURONS, HIDDEN).to(torch.float8_e4m3fn)
# What is said of a model, and what is wrong with it.
UNFIT: dict[str, Callable[[Path], object]] = {
    "no such folder": shutil.rmtree,
    "has no config.json": lambda model: (model / "config.json").unlink(),
    "cannot be read as JSON": lambda model: (model / "config.json").write_text("{"),
    "something else than": lambda model: (model / "config.json").write_text("[]"),
    "quantization_config": lambda model: change_config(model, quantization_config={}),
    "gives None as": lambda model: change_config(model, intermediate_size=None),
    "one whole number": lambda model: change_config(model, intermediate_size=[96] * 3),
    "allowed: intermediate_size, 64, as": lambda model: change_config(model, intermediate_size=64),
    "has neither model.safetensors nor": lambda model: (model / MODEL).unlink(),
    "as safetensors": lambda model: (model / MODEL).write_bytes(b"x" * 99),
    "no gated MLP found": lambda model: change_tensors(model, NO_MLP),
    "ffn_sub_norm.weight is no part": lambda model: change_tensors(
        model, {f"{LAYER}.ffn_sub_norm.weight": torch.ones(NEURONS)}
    ),
    "up_proj.weight is missing": lambda model: change_tensors(model, {f"{LAYER}.up_proj.weight": None}),
    "has type torch.float8_e4m3fn; allowed: torch.float64, ": lambda model: change_tensors(
        model, {f"{LAYER}.gate_proj.weight": FLOAT8}
    ),
}


@pytest.mark.parametrize("message", UNFIT)
def test_an_unfit_model_is_refused_in_one_line(model: Path, tmp_path: Path, message: str) -> None:
    UNFIT[message](model)
    with pytest.raises(UserError, match=message) as error:
        widen(model, tmp_path / "out", intermediate_size=128)
    assert str(error.value).startswith(str(model))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    model = make(tmp_path / "model", shard="40KB")
    shard = sorted(model.glob("*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(UserError, match=f"{shard.name}: cannot be read"):
        widen(model, tmp_path / "out", intermediate_size=128)
