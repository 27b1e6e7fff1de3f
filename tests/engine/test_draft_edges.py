"""Draft models that are quantised, short of context, or out of memory."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.engine import texts
from tests.engine.arms import Arms, Engine
from tests.engine.drafts import edited_draft, plugin_yaml
from tests.engine.exact import Reference, Tokens
from tests.engine.greedy import assert_same_tokens, greedy_job

pytestmark = pytest.mark.engine

NUM_TOKENS = 48
SHORT_CONTEXT = 128


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[Tokens]:
    return texts.sources(reference, 32, 300)


def quantise(draft: Path) -> None:
    """Weights to 8-bit integers with a scale per output, in compressed-tensors' layout."""
    weights = load_file(draft / "model.safetensors")
    for name in [name for name in weights if name.endswith("_proj.weight")]:
        scale = weights[name].float().abs().amax(1, keepdim=True) / 127
        weights[name] = (weights[name].float() / scale).round().to(torch.int8)
        weights[name + "_scale"] = scale
    save_file(weights, draft / "model.safetensors", metadata={"format": "pt"})


COMMON = {"num_bits": 8, "type": "int", "symmetric": True}
INT8 = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": COMMON | {"strategy": "channel", "dynamic": False},
            # Symmetric ones go to a kernel that has no 32-bit floats, on CPUs with AMX.
            "input_activations": COMMON | {"strategy": "token", "dynamic": True, "symmetric": False},
        }
    },
}


def test_a_quantised_draft_drafts(arms: Arms, reference: Reference, prompts: list[Tokens], tmp_path: Path) -> None:
    """8-bit weights and activations: another q, the same output."""
    quantise(edited_draft(tmp_path, quantization_config=INT8))
    result = arms.run(Engine(config=plugin_yaml(tmp_path)), greedy_job(prompts, NUM_TOKENS))
    assert_same_tokens(reference, prompts, result, arms.run(Engine(), greedy_job(prompts, NUM_TOKENS)))
    assert min(result.accepted, result.rejected) > 200


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        ({"max_position_embeddings": SHORT_CONTEXT}, {}),
        pytest.param({}, {"max_model_len": SHORT_CONTEXT}, marks=pytest.mark.full),
    ],
)
def test_drafts_stop_at_the_end_of_a_short_context(
    arms: Arms,
    reference: Reference,
    prompts: list[Tokens],
    tmp_path: Path,
    config: dict[str, int],
    keys: dict[str, int],
) -> None:
    """Texts grow past the draft's context; nobody else stops drafting, and every text is what it would be."""
    edited_draft(tmp_path, **config)
    engine = Engine(config=plugin_yaml(tmp_path, **keys))
    # The draft's cached positions end with its context: one token more would be out of bounds.
    result = arms.run(engine, greedy_job(prompts, NUM_TOKENS))
    assert_same_tokens(reference, prompts, result, arms.run(Engine(), greedy_job(prompts, NUM_TOKENS)))
    lengths = [len(prompt) for prompt in prompts]
    within = sum(length + NUM_TOKENS <= SHORT_CONTEXT for length in lengths)
    beyond = sum(length > SHORT_CONTEXT for length in lengths)
    assert min(within, beyond, sum(map(bool, result.outputs)) - within - beyond) > 2
    assert result.accepted > 100
    assert not any(count for name, count in result.metrics.items() if "proposer_errors" in name)
