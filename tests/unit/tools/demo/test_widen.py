"""A widened model computes what the narrow one does."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.demo.widen import widen

WEIGHTS = "model.safetensors"


@pytest.fixture(params=[True, False], ids=["tied", "not tied"])
def model(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A random model, whose MLPs matter and whose likeliest token is clear."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 3}
    heads: dict[str, Any] = {"num_attention_heads": 2, "num_key_value_heads": 1, "initializer_range": 0.2}
    config = LlamaConfig(**sizes, **heads, tie_word_embeddings=request.param)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    return tmp_path / "model"


def load(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder).eval()


def test_logits_and_greedy_text_stay_and_parameters_are_as_told(model: Path, tmp_path: Path) -> None:
    before = load(model)
    parameters = widen(model, tmp_path / "out", 2 * before.num_parameters())
    after = load(tmp_path / "out")
    assert parameters == after.num_parameters() >= 2 * before.num_parameters()
    assert (tmp_path / "out" / "tokenizer.json").read_text() == "{}"
    prompt = torch.tensor([[1, 5, 9], [7, 3, 60]])
    with torch.no_grad():
        texts = [one.generate(prompt, max_new_tokens=8, do_sample=False, pad_token_id=0) for one in (before, after)]
        torch.testing.assert_close(after(texts[0]).logits, before(texts[0]).logits, rtol=0, atol=1e-6)
    assert torch.equal(*texts)
    old, new = load_file(model / WEIGHTS), load_file(tmp_path / "out" / WEIGHTS)
    assert old.keys() == new.keys()
    for name, tensor in old.items():
        assert torch.equal(new[name][tuple(slice(length) for length in tensor.shape)], tensor)
        assert new[name].count_nonzero() == tensor.count_nonzero()


def test_the_size_for_a_parameter_count_is_the_smallest_multiple_of_64(model: Path, tmp_path: Path) -> None:
    has = load(model).num_parameters()
    at = {size: has + (size - 96) * 3 * 3 * 32 for size in (128, 192)}
    for wanted, size in ((has, 128), (at[128], 128), (at[128] + 1, 192), (at[192], 192)):
        assert widen(model, tmp_path / f"for {wanted}", wanted) == at[size]
    with pytest.raises(UserError, match=rf"got {has - 1:,} parameters to reach; allowed: from {has:,}, what it has$"):
        widen(model, tmp_path / "less", has - 1)
    for taken in (model, model / "config.json"):
        with pytest.raises(UserError, match=r"is a file or not empty; allowed: a folder, new or empty$"):
            widen(model, taken, has)
