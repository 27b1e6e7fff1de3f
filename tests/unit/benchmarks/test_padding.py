"""Padded models have the outputs of the bundled ones."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from benchmarks.gpu.padding import SIZES, Dimensions, pad_model
from vllm_spec_plugin.models import model_path


def logits_of(folder: Path, token_ids: torch.Tensor) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        logits: torch.Tensor = model(token_ids).logits
    return logits


@pytest.mark.parametrize("name", ["target", "draft"])
def test_logits_are_those_of_the_model(tmp_path: Path, name: str) -> None:
    """The draft's heads are widened too, which rounds its queries: kept in float32 here."""
    token_ids = torch.randint(1, 2048, (2, 100), generator=torch.Generator().manual_seed(0))
    pad_model(model_path(name), tmp_path / name, SIZES["tiny"][name], torch.float32)
    padded, own = logits_of(tmp_path / name, token_ids), logits_of(model_path(name), token_ids)
    torch.testing.assert_close(padded, own, atol=1e-4, rtol=1e-4)
    assert (padded.argmax(-1) == own.argmax(-1)).all()


def test_a_hidden_size_for_which_norms_would_round_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="hidden size 512: allowed: 256 times a power of 4"):
        pad_model(model_path("target"), tmp_path / "out", Dimensions(512, 1024, 4, 8, 2, 64))
