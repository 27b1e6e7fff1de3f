"""The recorder between a model runner and its verification."""

from types import SimpleNamespace
from typing import Any

import torch

from vllm_spec_plugin.tools.bench.replay.recorder import Recorder


class Sampler:
    """Says what it was told to."""

    def __init__(self, token_ids: list[list[int]], nodes: list[int]) -> None:
        self._token_ids, self._nodes = token_ids, nodes
        self.verdict: Any = None

    def forward(self, metadata: Any, draft_probs: Any, logits: Any, sampling: Any, trees: Any = None) -> Any:
        token_ids = torch.tensor(self._token_ids)
        self.verdict = SimpleNamespace(
            rows=torch.tensor([[0, 1, 2], [3, 4, 5]]), nodes=torch.tensor(self._nodes), token_ids=token_ids
        )
        return SimpleNamespace(sampled_token_ids=token_ids)


class Runner:
    """Two requests, of which the second has four output tokens."""

    def __init__(self, sampler: Sampler) -> None:
        self.rejection_sampler = sampler
        self.input_batch = SimpleNamespace(req_ids=["stream-1-abcd", "stream-0-ef01"])
        outputs = {"stream-1-abcd": [5], "stream-0-ef01": [5, 6, 7, 8]}
        self.requests = {name: SimpleNamespace(output_token_ids=tokens) for name, tokens in outputs.items()}

    def _sample(self, logits: Any, metadata: Any) -> Any:
        return self.rejection_sampler.forward(metadata, None, logits, None, metadata.trees)


def step(runner: Runner, drafted: list[int], trees: Any = None) -> Any:
    return runner._sample(None, SimpleNamespace(num_draft_tokens=drafted, trees=trees))


def test_outcomes_are_noted_by_request_and_position_and_outputs_cut_to_a_token() -> None:
    sampler = Sampler([[11, 12, 13], [21, -1, -1]], [1, -1])
    runner = Runner(sampler)
    recorder = Recorder(runner)
    output = step(runner, [2, 1])
    assert recorder.accepted == {1: {1: (2, [0, 1])}, 0: {4: (1, [])}}
    assert output.sampled_token_ids.tolist() == [[11, -1, -1], [21, -1, -1]]
    # What drafts next stands at the first token, and no branch's keys and values are kept.
    assert sampler.verdict.rows.tolist() == [[0, 0, 0], [3, 3, 3]]
    assert sampler.verdict.nodes.tolist() == [-1, -1]


def test_of_trees_the_accepted_path_is_noted() -> None:
    runner = Runner(Sampler([[11, 12, 13], [21, -1, -1]], [3, -1]))
    recorder = Recorder(runner)
    trees = [SimpleNamespace(parents=(-1, 0, -1, 2), numbers=(0, 2, 1, 3)), SimpleNamespace(parents=(), numbers=())]
    step(runner, [4, 0], trees)
    # By the order in which a smaller tree would have them.
    assert recorder.accepted == {1: {1: (4, [1, 3])}, 0: {4: (0, [])}}


def test_requests_say_what_they_are_told_to() -> None:
    runner = Runner(Sampler([[11, 12, 13], [21, -1, -1]], [1, -1]))
    recorder = Recorder(runner, [[0, 0, 0, 0, 44], [0, 31]])
    assert step(runner, [2, 1]).sampled_token_ids.tolist() == [[31, -1, -1], [44, -1, -1]]
    recorder.remove()
    assert step(runner, [2, 1]).sampled_token_ids.tolist() == [[11, 12, 13], [21, -1, -1]]
