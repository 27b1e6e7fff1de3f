"""EAGLE-3 heads draft from the target's hidden states: what the engine computes is what plain torch computes."""

import pytest
import torch

from tests.engine import texts
from tests.engine.arms import EAGLE3, TIGHT, Arms, Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.test_draft_model import mixed_job
from vllm_spec_plugin.proposers.eagle3.checkpoint import Head, read_head
from vllm_spec_plugin.proposers.eagle3.reference import Eagle3Head
from vllm_spec_plugin.tools.demo import model_path

pytestmark = pytest.mark.engine

K = 4
ATOL = 2e-3


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[Tokens]:
    return texts.sources(reference, 24, 400)


class PlainHead:
    """The bundled head beside the bundled target, in transformers and plain torch."""

    def __init__(self, reference: Reference) -> None:
        self._target = reference.model
        self._files: Head = read_head(str(model_path("eagle3")))
        self._head = Eagle3Head.load(self._files)

    @torch.inference_mode()
    def logits(self, text: list[int]) -> list[torch.Tensor]:
        """Per number of draft tokens at the end of `text`, from 0, [vocab_size], the logits after it."""
        config = self._files.config
        layers = config.aux_layers_of(self._target.config.num_hidden_layers)
        hidden = self._target(torch.tensor([text]), output_hidden_states=True).hidden_states
        features = self._head.combine(torch.cat([hidden[layer] for layer in layers], -1))
        embeddings = self._target.get_input_embeddings()(torch.tensor([text[1:]]))
        found = []
        for count in range(K):
            length = len(text) - 1 - count
            *_, output = self._head.unroll(embeddings, features[:, :length], count + 1)
            found.append(self._head.lm_head(output[0, -1]))
        return found


def test_logits_are_those_of_plain_torch(arms: Arms, reference: Reference, prompts: list[Tokens]) -> None:
    """Each recorded output, after chunked prompts, prefix-cache hits, preemption and rejected drafts."""
    result = arms.run(Engine(config=EAGLE3, check=True, **TIGHT), mixed_job(prompts, record_drafting=0.1))
    assert result.preemptions > 0
    assert result.metrics["vllm:prefix_cache_hits"] > 0
    assert not any(count for name, count in result.metrics.items() if "proposer_errors" in name)
    assert result.accepted > 50
    head = PlainHead(reference)
    num_by_count = [0] * K
    for text, logits in result.notes["drafting"]:
        gaps = [float((torch.tensor(logits) - own).abs().max()) for own in head.logits(text)]
        best = min(range(K), key=gaps.__getitem__)
        assert gaps[best] < ATOL, f"after {len(text)} tokens: {gaps}"
        num_by_count[best] += 1
    assert min(num_by_count) > 10
