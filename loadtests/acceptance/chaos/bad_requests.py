"""Invalid requests, which a server must refuse with status 400. Pure."""

from dataclasses import dataclass
from typing import Any

from loadtests.stream.client import CHAT, COMPLETIONS


@dataclass(frozen=True)
class BadRequest:
    """An invalid request.

    Attributes:
        body: JSON body of the request; bytes are sent as they are.
    """

    name: str
    path: str
    body: Any


def bad_requests(model: str, context: int) -> tuple[BadRequest, ...]:
    """One invalid request of each kind, for a model with a context of `context` tokens."""
    sound: dict[str, Any] = {"model": model, "prompt": "def main():", "max_tokens": 4}
    wrong: dict[str, dict[str, Any]] = {
        "a prompt longer than the context": {"prompt": [7] * (context + 10)},
        "a text longer than the context": {"prompt": "x = 1\n" * context},
        "no prompt": {"prompt": None},
        "a prompt that is an object": {"prompt": {"text": "x"}},
        "a token out of the vocabulary": {"prompt": [5, 2_000_000]},
        "max_tokens in words": {"max_tokens": "many"},
        "negative max_tokens": {"max_tokens": -5},
        "a temperature in words": {"temperature": "hot"},
        "a negative temperature": {"temperature": -1},
        "top_p of 7": {"top_p": 7},
        "min_p of 7": {"min_p": 7},
        "n of -1": {"n": -1},
        "a seed in words": {"seed": "seven"},
        "stop that is a number": {"stop": 5},
        "negative logprobs": {"logprobs": -7},
        "a bias of a token that is not": {"logit_bias": {"2000000": 5}},
        "options of a stream that is none": {"stream_options": {"include_usage": True}},
        "spec neither on nor off": {"vllm_xargs": {"spec": "of"}},
        "spec that is an object": {"vllm_xargs": {"spec": {"on": 1}}},
        "negative spec_tokens": {"vllm_xargs": {"spec_tokens": -3}},
        "far too many spec_tokens": {"vllm_xargs": {"spec_tokens": 99999}},
        "half a spec_token": {"vllm_xargs": {"spec_tokens": 1.5}},
        "an unknown spec_method": {"vllm_xargs": {"spec_method": "eagle"}},
        "a list as spec_method": {"vllm_xargs": {"spec_method": ["ngram"]}},
        "an unknown key of spec": {"vllm_xargs": {"spec_token": 2}},
        "spec off beside spec_tokens": {"vllm_xargs": {"spec": "off", "spec_tokens": 2}},
        "vllm_xargs in words": {"vllm_xargs": "spec"},
    }
    endless = [{"role": "user", "content": "y = 2\n" * context}]
    completions = [BadRequest(name, COMPLETIONS, sound | body) for name, body in wrong.items()]
    return (
        *completions,
        BadRequest("no JSON", COMPLETIONS, b'{"model": '),
        BadRequest("a chat of words", CHAT, {"model": model, "messages": "hello"}),
        BadRequest("a chat without end", CHAT, {"model": model, "messages": endless}),
    )
