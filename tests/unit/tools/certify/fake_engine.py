"""An engine whose next token depends on the last one alone, for a whole certification in seconds."""

import bisect
import functools
import itertools
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from vllm_spec_tools.certify.target_probabilities import probabilities
from vllm_spec_tools.engines.jobs import CertifyRequest, Job, JobOutput, JobResult, Step, Tokens

# Prompts are made of tokens 16 to 47.
_VOCABULARY = 64
_LOGITS = torch.from_numpy(np.random.default_rng(3).normal(size=(_VOCABULARY, _VOCABULARY)) * 3)
_LIKELIEST = _LOGITS.argmax(-1).tolist()
_MOST = 4
_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")


@functools.cache
def _distribution(prompt: Tokens, output: Tokens, params: tuple[tuple[str, Any], ...], bias: Any) -> list[float]:
    last = output[-1] if output else prompt[-1]
    given = dict(params) | ({"logit_bias": dict(bias)} if bias else {})
    row = probabilities(_LOGITS[None, last], prompt, [output], given)[0]
    return list(itertools.accumulate(row.tolist()))


class FakeEngine:
    """Answers as `EngineProcess` does; certain drafts, the likeliest tokens, are verified token by token.

    Attributes:
        unverified: share of the draft tokens that are output without verification, by sampled requests.
        rate: share of steps with drafts, by the engine's label.
        runner: vLLM's runner, as it says.
    """

    unverified = 0.0
    rate: Mapping[str, float] = {}
    runner = "V1"

    def __init__(self, arguments: dict[str, Any], folder: Any, environment: Any) -> None:
        """Knows what engine it is by its folder."""
        label = folder.name.replace("_", " ")
        self._rate = self.rate.get(label, 0.9) if arguments.get("speculative_config") else 0.0
        self._rng = random.Random(label)
        self._verified = self._accepted = 0

    def facts(self) -> dict[str, Any]:
        return {
            "runner": self.runner,
            "device": "cpu",
            "dtype": "float32",
            "max_model_len": 1024,
            "vocab_size": _VOCABULARY,
            "has_tokenizer": False,
            "reasoning_end": None,
            "block_size": 32,
        }

    def run(self, job: Job) -> JobResult:
        self._verified = self._accepted = 0
        outputs = [[self._output(request, i) for i in range(request.params.get("n", 1))] for request in job.requests]
        metrics: dict[str, float] = {
            "vllm:spec_decode_num_draft_tokens": self._verified,
            "vllm:spec_decode_num_accepted_tokens": self._accepted,
            "vllm:num_preemptions": 3,
        }
        return JobResult(outputs, [], [None] * len(outputs), metrics, 1.0)

    def stop(self) -> None:
        pass

    def _output(self, request: CertifyRequest, index: int) -> JobOutput:
        params = request.params
        if params.get("logprobs") == -1:
            row = _LOGITS[request.prompt[-1]].numpy().astype(np.float32)
            return JobOutput([0], "", "length", None, None, [row])
        # Noise of a seed's positions, as vLLM has it.
        seed = params.get("seed")
        rng = self._rng if seed is None else random.Random(seed + index)
        tokens: list[int] = []
        steps: list[Step] = []
        while len(tokens) < params["max_tokens"]:
            tokens += self._step(request, tokens, steps, rng)
        logprobs = None
        if count := params.get("logprobs"):
            texts = [(*request.prompt, *tokens[:i]) for i in range(len(tokens))]
            likeliest = [_LOGITS[text[-1]].topk(count) for text in texts]
            logprobs = [dict(zip(top.indices.tolist(), top.values.tolist(), strict=True)) for top in likeliest]
            for likely, text, token in zip(logprobs, texts, tokens, strict=True):
                likely[token] = float(_LOGITS[text[-1], token])
        return JobOutput(tokens, "", "length", None, logprobs, None, steps)

    def _step(self, request: CertifyRequest, tokens: list[int], steps: list[Step], rng: random.Random) -> list[int]:
        room = request.params["max_tokens"] - len(tokens) - 1
        drafts, new = [], list[int]()
        if steps and self._rng.random() < self._rate:
            text = (*request.prompt, *tokens)
            for _ in range(self._rng.randint(0, min(_MOST, room))):
                drafts.append(_LIKELIEST[text[-1]])
                text = (*text, drafts[-1])
        for place in range(len(drafts) + 1):
            own = self._sample(request, (*tokens, *new), rng)
            draft = drafts[place] if place < len(drafts) else None
            if draft is not None and request.params["temperature"] and self._rng.random() < self.unverified:
                own = draft
            new.append(own)
            if own != draft:
                break
        self._verified += len(drafts)
        self._accepted += len(new) - 1
        steps.append(Step(len(new), tuple(drafts), len(steps)))
        return new

    def _sample(self, request: CertifyRequest, output: Tokens, rng: random.Random) -> int:
        params = request.params
        if not params["temperature"]:
            return _LIKELIEST[(*request.prompt, *output)[-1]]
        own = tuple((key, params[key]) for key in _SAMPLING if key in params)
        sums = _distribution(request.prompt, output, own, tuple(params.get("logit_bias", {}).items()))
        return bisect.bisect(sums, rng.random() * sums[-1])
