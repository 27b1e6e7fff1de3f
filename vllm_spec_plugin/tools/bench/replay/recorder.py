"""Records outcomes in an arm's process.

Each position of a response is drafted for and verified, but the response grows by one token per step: accepted drafts
are cut from the output. So the outcome at every position is known, whichever of them a policy reaches. The first token
of an output has the target's distribution whatever was drafted, so the responses are the target's own.
"""

import functools
import re
from collections.abc import Sequence
from typing import Any

import torch

from vllm_spec_plugin.config.request_options import draft_options
from vllm_spec_plugin.tools.bench.load.records import Request
from vllm_spec_plugin.verification.topology import Topology

# What `SteppedEngine` calls its requests; vLLM adds a suffix.
_NAME = re.compile(r"stream-(\d+)")


class Recorder:
    """Notes what verification says in each step of a model runner, and cuts each output to its first token.

    Attributes:
        accepted: per request, per output position, the draft tokens verified and the nodes accepted.
    """

    def __init__(self, runner: Any, responses: Sequence[Sequence[int]] = ()) -> None:
        """Replaces the runner's verification until `remove`.

        Args:
            runner: a running engine's, with the plugin's sampler.
            responses: per request, the tokens that it is made to say, so that several proposers draft for the same
                text; none are what it says itself.
        """
        self.accepted: dict[int, dict[int, tuple[int, list[int]]]] = {}
        self._runner, self._responses = runner, responses
        self._sample, self._verify = runner._sample, runner.rejection_sampler.forward
        runner._sample = self._sampled
        runner.rejection_sampler.forward = self._verified

    def remove(self) -> None:
        """Puts back what was there."""
        self._runner._sample = self._sample
        self._runner.rejection_sampler.forward = self._verify

    def _requests(self) -> list[tuple[int, int]]:
        """Per row of the batch, its request's number and output tokens so far."""
        found = []
        for request_id in self._runner.input_batch.req_ids:
            match = _NAME.match(request_id)
            assert match is not None, request_id
            found.append((int(match[1]), len(self._runner.requests[request_id].output_token_ids)))
        return found

    def _verified(
        self, metadata: Any, draft_probs: Any, logits: Any, sampling: Any, trees: Any = None, *others: Any
    ) -> Any:
        sampler = self._runner.rejection_sampler
        output = self._verify(metadata, draft_probs, logits, sampling, trees, *others)
        counts = (output.sampled_token_ids >= 0).sum(1).tolist()
        nodes = sampler.verdict.nodes.tolist()
        for row, (request, position) in enumerate(self._requests()):
            drafted = metadata.num_draft_tokens[row]
            path = list(range(counts[row] - 1)) if trees is None else _path(trees[row], nodes[row])
            self.accepted.setdefault(request, {})[position] = (drafted, path)
        # What follows the first token is taken back: its rows, and KV of a tree's path.
        output.sampled_token_ids[:, 1:] = -1
        sampler.verdict.rows[:] = sampler.verdict.rows[:, :1].clone()
        sampler.verdict.nodes[:] = -1
        return output

    def _sampled(self, logits: Any, spec_decode_metadata: Any) -> Any:
        output = self._sample(logits, spec_decode_metadata)
        if self._responses:
            tokens = [self._responses[request][position] for request, position in self._requests()]
            output.sampled_token_ids[:, 0] = torch.tensor(tokens).to(output.sampled_token_ids)
        return output


def _path(tree: Topology, node: int) -> list[int]:
    """The accepted nodes up to the last one, by their numbers in the tree's order; -1 is the root."""
    path: list[int] = []
    while node >= 0:
        path.insert(0, tree.numbers[node])
        node = tree.parents[node]
    return path


def record(
    llm: Any, runner: Any, requests: Sequence[Request], spec_method: str, responses: Sequence[Sequence[int]], seed: int
) -> dict[str, Any]:
    """Records the outcomes of one proposer's drafts, all requests in one batch.

    Args:
        llm: `vllm.LLM` without processes of its own, without requests.
        runner: its model runner.
        requests: to complete.
        spec_method: the proposer.
        responses: per request, the token ids that it is to say; empty is what they say themselves.
        seed: of torch's default generator.

    Returns:
        Per request: `responses` token ids, `prompt_tokens` lengths, and `outcomes`, per output position the draft
        tokens verified and the nodes accepted.
    """
    from vllm_spec_plugin.compat.inspection import SteppedEngine

    torch.manual_seed(seed)
    prompts = {request.prompt for request in requests}
    engine = SteppedEngine(llm, prompts, functools.partial(draft_options, None, spec_method))
    recorder = Recorder(runner, responses)
    said: dict[str, list[int]] = {engine.add(request): [] for request in requests}
    try:
        ended = 0
        while ended < len(requests):
            for name, token_ids, has_ended in engine.step():
                said[name] += token_ids
                ended += has_ended
    finally:
        recorder.remove()
    encode = llm.get_tokenizer().encode
    outcomes = [
        [recorder.accepted.get(i, {}).get(position, (0, [])) for position in range(request.num_tokens)]
        for i, request in enumerate(requests)
    ]
    lengths = [len(encode(request.prompt)) for request in requests]
    return {"responses": list(said.values()), "prompt_tokens": lengths, "outcomes": outcomes}
