"""A scripted target answers what the script says, whether it is computed or not."""

from types import SimpleNamespace

import pytest
import torch

from vllm_spec_plugin.compat.scripted_target import scripted_target

VOCAB, HIDDEN = 5000, 8


class Model(torch.nn.Module):
    """Favours token 7."""

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(len(hidden), VOCAB, dtype=hidden.dtype)
        logits[:, 7] = 100
        return logits


class Runner:
    """As much of vLLM's as is replaced."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.model = Model()
        self.computed = 0
        self.model_config = SimpleNamespace(get_hidden_size=lambda: HIDDEN, get_vocab_size=lambda: VOCAB, dtype=dtype)

    def _model_forward(self, input_ids: torch.Tensor, positions: torch.Tensor, more: int = 0) -> torch.Tensor:
        self.computed += more
        return torch.rand(len(input_ids), HIDDEN, dtype=self.model_config.dtype)


def answered(runner: Runner) -> list[int]:
    input_ids, positions = torch.tensor([1, 300, 4999]), torch.tensor([4, 5, 6])
    hidden = runner._model_forward(input_ids=input_ids, positions=positions, more=1)
    return runner.model.compute_logits(hidden[[0, 2]]).argmax(1).tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_computed", [False, True])
def test_the_script_is_followed_and_the_model_put_back(dtype: torch.dtype, is_computed: bool) -> None:
    runner = Runner(dtype)
    with scripted_target(runner, lambda token_ids, positions: (token_ids * positions) % VOCAB, is_computed=is_computed):
        assert answered(runner) == [4, 4999 * 6 % VOCAB]
        assert runner.computed == is_computed
    assert answered(runner) == [7, 7]
    assert runner.computed == is_computed + 1
