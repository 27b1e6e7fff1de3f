"""The scorer hands trees to the walk, with each row's own context, and reports where tokens were decided."""

from types import SimpleNamespace

import pytest
import torch

from tests.pretended_gpu import pretended, waits
from vllm_spec_plugin.verification.topology import chain, topology

SpecRejectionSampler = pytest.importorskip("vllm_spec_plugin.v1.verification.sampler").SpecRejectionSampler
VOCAB = 6
UNUSED = (
    "allowed_token_ids_mask",
    "bad_words_token_ids",
    "thinking_budget_state_holder",
    "top_k",
    "top_p",
    "max_num_logprobs",
    "logprob_token_ids",
    "prompt_token_ids",
)
FORK = topology([[0], [0, 0], [1], [1, 0]])


class Gathering:
    """vLLM's sampler, of which logprobs are wanted."""

    logprobs_mode = "raw_logits"

    def gather_logprobs(self, logprobs, num_logprobs, tokens):
        return logprobs, num_logprobs, tokens


def metadata(temperatures, **more):
    """vLLM's `SamplingMetadata` with nothing but temperatures."""
    plain = {
        "temperature": torch.tensor(temperatures),
        "all_greedy": not any(temperatures),
        "all_random": all(temperatures),
        "generators": {},
        "output_token_ids": [[] for _ in temperatures],
        "logitsprocs": SimpleNamespace(non_argmax_invariant=[], argmax_invariant=[]),
        "no_penalties": True,
    }
    return SimpleNamespace(**dict.fromkeys(UNUSED) | plain | more)


def favouring(*tokens):
    """A row of logits per token, which is all but certain there."""
    return torch.nn.functional.one_hot(torch.tensor(tokens), VOCAB).float() * 50


def step(*drafts):
    """vLLM's `SpecDecodeMetadata`."""
    tokens = [token for draft in drafts for token in draft]
    return SimpleNamespace(num_draft_tokens=list(map(len, drafts)), draft_token_ids=torch.tensor(tokens))


def sample(drafts, logits, trees, temperatures=None, **more):
    sampler = SpecRejectionSampler(Gathering())
    given = metadata(temperatures or [0.0] * len(drafts), **more)
    return sampler.verify(step(*drafts), None, logits.clone(), given, trees)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_branch_that_the_target_takes_is_accepted(temperature):
    """The first node fails, the third and fourth are right; the second request's chain is verified beside it."""
    logits = torch.cat([favouring(3, 0, 0, 4, 5), favouring(1, 2, 0)])
    output, verdict = sample([[2, 1, 3, 4], [1, 4]], logits, [FORK, chain(2)], [temperature, temperature])
    assert output.sampled_token_ids.tolist() == [[3, 4, 5], [1, 2, -1]]
    assert verdict.token_ids is output.sampled_token_ids
    assert verdict.nodes.tolist() == [3, 0]
    assert verdict.rows[:, -1].tolist() == [4, 6]


def test_each_row_is_penalised_for_the_drafts_on_its_own_way():
    """Every row favours token 3 by a little, a penalty for having said it forbids it: also where a sibling said it."""
    logits = torch.zeros(5, VOCAB)
    logits[:, 3] = 1
    logits[:, 4] = 0.5
    penalties = {
        "no_penalties": False,
        "prompt_token_ids": torch.full((1, 1), VOCAB),
        "frequency_penalties": torch.tensor([5.0]),
        "presence_penalties": torch.zeros(1),
        "repetition_penalties": torch.ones(1),
    }
    # After [3] comes 4, then nothing that was drafted; the first node's tokens are not before the second's.
    output, verdict = sample([[2, 1, 3, 4]], logits, [FORK], **penalties)
    assert output.sampled_token_ids[0, :2].tolist() == [3, 4]
    assert output.sampled_token_ids[0, 2] not in (3, 4)
    assert verdict.nodes.tolist() == [3]


@pytest.mark.parametrize("temperature", [0.0, 0.5])
@pytest.mark.parametrize(
    ("drafts", "favoured", "tree", "output", "rows"),
    [
        ([2, 1, 3, 4], (3, 0, 0, 4, 5), FORK, [3, 4, 5], [0, 3, 4]),
        ([3, 2, 4], (3, 1, 4, 0), None, [3, 1, -1, -1], [0, 1, 1, 1]),
    ],
    ids=["tree", "chain"],
)
def test_raw_logprobs_are_of_the_rows_that_decided(temperature, drafts, favoured, tree, output, rows):
    logits = favouring(*favoured) + torch.arange(float(len(favoured)))[:, None]
    sampled, _ = sample([drafts], logits, tree and [tree], [temperature], max_num_logprobs=2)
    found, num_logprobs, tokens = sampled.logprobs_tensors
    assert num_logprobs == 2
    assert sampled.sampled_token_ids.tolist() == [output]
    assert tokens.tolist() == [max(token, 0) for token in output]
    torch.testing.assert_close(found, logits[rows])


@pytest.mark.parametrize(("temperatures", "copies"), [([0.0, 0.0], 1), ([1.0, 1.0], 0), ([0.0, 1.0], 0)])
def test_a_step_waits_for_the_device_once(temperatures, copies):
    """Greedy steps for the most likely tokens; of others vLLM copies the output, which then is on the device."""
    with pretended() as device:
        logits = favouring(3, 1, 4, 0, 5).to(device)
        given = metadata(temperatures)
        given.temperature = given.temperature.to(device)
        drafts = [[3, 1, 2], []]
        of_step = step(*drafts)
        of_step.draft_token_ids = of_step.draft_token_ids.to(device)
        sampler = SpecRejectionSampler(Gathering(), counts_outputs=False)
        with waits() as found:
            output = sampler(of_step, None, logits, given, None, drafts)
        assert len(found) == copies, found
        assert output.sampled_token_ids.device == (torch.device("cpu") if copies else device)
        assert output.sampled_token_ids.tolist() == [[3, 1, 4, -1], [5, -1, -1, -1]]
