"""Texts of self-distillation are the target's own, as vLLM serves it."""

import pytest
import torch

from vllm_spec_plugin.models import model_path
from vllm_spec_tools.training.backbone import load_backbone
from vllm_spec_tools.training.target_engine import TargetEngine

pytestmark = pytest.mark.engine
_NEW, _TIE = 24, 1e-3


def test_greedy_text_is_the_targets_and_sampled_text_depends_on_the_seed() -> None:
    target = str(model_path("target"))
    backbone = load_backbone(target)
    prompts = [backbone.encode(text, special=True) for text in ("def add(first, second):\n", "class Node:\n    def ")]
    with TargetEngine(target, 128) as engine:
        greedy = engine.write(prompts, _NEW, 0.0, 1)
        first, again, other = (engine.write(prompts, _NEW, 1.0, seed) for seed in (1, 1, 2))
    assert first == again != other
    for prompt, new in zip(prompts, greedy, strict=True):
        assert 0 < len(new) <= _NEW
        assert len(new) == _NEW or new[-1] == backbone.tokenizer.eos_token_id
        logits = backbone.read(torch.tensor([prompt + new]))[1][0, len(prompt) - 1 : -1]
        chosen = logits.gather(1, torch.tensor(new)[:, None])[:, 0]
        assert (logits.amax(1) - chosen).max() < _TIE
