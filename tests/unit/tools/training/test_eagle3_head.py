"""The reference forward pass: chains computed at once equal those computed one by one."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.proposers.eagle3.folders import HIDDEN, LAYER, speculators_config, write
from vllm_spec_plugin.proposers.eagle3.checkpoint import read_head
from vllm_spec_tools.training.eagle3_head import Eagle3Head

LENGTH, STEPS = 7, 4


def head_of(folder: Path, **config: Any) -> Eagle3Head:
    """A random head in float64: its outputs are fed back, and rounding with them."""
    return Eagle3Head.load(read_head(write(folder, speculators_config(**config)))).requires_grad_(False).double()


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings and auxiliary hidden states of two texts."""
    generator = torch.Generator().manual_seed(1)
    embeddings = torch.randn(2, LENGTH + STEPS - 1, HIDDEN, generator=generator, dtype=torch.float64)
    return embeddings, torch.randn(2, LENGTH, 3 * HIDDEN, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"norm_before_residual": False, "norm_output": True},
        {"norm_before_fc": True, "fc_norm": True},
        {"transformer_layer_config": LAYER | {"num_hidden_layers": 2, "head_dim": 8}},
    ],
)
def test_a_step_of_a_chain_is_a_position_whose_features_are_the_output_before(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    """A chain from position b is the text up to b, and then one position per step."""
    head = head_of(tmp_path, **config)
    embeddings, states = inputs()
    features = head.combine(states)
    steps = list(head.unroll(embeddings, features, STEPS))
    assert [step.shape for step in steps] == [(2, LENGTH, HIDDEN)] * STEPS
    before_norm: list[torch.Tensor] = []
    head.norm.register_forward_pre_hook(lambda module, given: before_norm.append(given[0]))
    for base in range(LENGTH):
        grown = features[:, : base + 1]
        for step in steps:
            (output,) = head.unroll(embeddings[:, : grown.shape[1]], grown, 1)
            torch.testing.assert_close(output[:, -1], step[:, base])
            ahead = output if head.config.norm_output else before_norm[-1]
            grown = torch.cat([grown, ahead[:, -1:]], 1)


def test_a_position_does_not_depend_on_later_ones(tmp_path: Path) -> None:
    head = head_of(tmp_path)
    embeddings, states = inputs()
    before = list(head.unroll(embeddings, head.combine(states), STEPS))
    states[:, 4:] += 1
    embeddings[:, 3 + STEPS :] += 1
    for one, other in zip(before, head.unroll(embeddings, head.combine(states), STEPS), strict=True):
        torch.testing.assert_close(one[:, :4], other[:, :4])
        assert not torch.allclose(one[:, 4:], other[:, 4:])


def test_a_llama_layer_computes_the_same(tmp_path: Path) -> None:
    """With equal norms and no embedding part in its queries, keys and values, the head is one layer of a Llama."""
    from transformers import LlamaConfig, LlamaModel

    # Its norms compute in float32 whatever the type.
    head = head_of(tmp_path, norm_before_residual=False).float()
    torch.manual_seed(0)
    llama = LlamaModel(LlamaConfig(**LAYER)).eval()
    own = {name: tensor for name, tensor in head.state_dict().items() if name in llama.state_dict()}
    for name in ("q_proj", "k_proj", "v_proj"):
        weight = own[f"layers.0.self_attn.{name}.weight"]
        weight[:, :HIDDEN] = 0
        own[f"layers.0.self_attn.{name}.weight"] = weight[:, HIDDEN:]
    own["layers.0.input_layernorm.weight"] = head.state_dict()["layers.0.hidden_norm.weight"]
    llama.load_state_dict(own, strict=False)
    embeddings, states = (given.float() for given in inputs())
    features = head.combine(states)
    (output,) = head.unroll(embeddings[:, :LENGTH], features, 1)
    torch.testing.assert_close(output, llama(inputs_embeds=features).last_hidden_state)
