"""Values of `SamplingParams` that change the greedy output that they are made for, or what is returned with it."""

from collections.abc import Callable, Sequence
from typing import Any

from vllm.sampling_params import RepetitionDetectionParams

Params = dict[str, Any]

# Of an output without parameters, and the text of each of its tokens: at most 24 tokens.
_VALUES: dict[str, Callable[[Sequence[int], Sequence[str]], Params]] = {
    "allowed_token_ids": lambda tokens, _: {"allowed_token_ids": sorted(set(tokens))[::2]},
    "bad_words": lambda _, words: {"bad_words": [next(word.strip() for word in words[1:] if word.strip())]},
    "extra_args": lambda *_: {"extra_args": {"spec_tokens": 2}},
    "frequency_penalty": lambda *_: {"frequency_penalty": 1.5},
    "ignore_eos": lambda *_: {"ignore_eos": True},
    "include_stop_str_in_output": lambda _, words: {"stop": [words[7]], "include_stop_str_in_output": True},
    "logit_bias": lambda tokens, _: {"logit_bias": {tokens[3]: -4.0, tokens[5]: 2.0}},
    "logprob_token_ids": lambda tokens, _: {"logprobs": 3, "logprob_token_ids": [tokens[2], 0, tokens[9]]},
    "logprobs": lambda *_: {"logprobs": 5},
    "max_tokens": lambda *_: {"max_tokens": 3},
    "min_p": lambda *_: {"min_p": 0.2},
    "min_tokens": lambda tokens, _: {"min_tokens": 9, "stop_token_ids": [tokens[4]]},
    "n": lambda *_: {"n": 1},
    "presence_penalty": lambda *_: {"presence_penalty": 1.5},
    "prompt_logprobs": lambda *_: {"prompt_logprobs": 2},
    "repetition_detection": lambda *_: {"repetition_detection": RepetitionDetectionParams(6, 1, 2)},
    "repetition_penalty": lambda *_: {"repetition_penalty": 1.4},
    "seed": lambda *_: {"seed": 5},
    "skip_reading_prefix_cache": lambda *_: {"skip_reading_prefix_cache": True},
    "skip_special_tokens": lambda *_: {"skip_special_tokens": False},
    "spaces_between_special_tokens": lambda *_: {"spaces_between_special_tokens": False},
    "stop": lambda _, words: {"stop": [words[5] + words[6]]},
    "stop_token_ids": lambda tokens, _: {"stop_token_ids": [tokens[6]]},
    "stream_interval": lambda *_: {"stream_interval": 3},
    "structured_outputs": lambda *_: {"structured_outputs": {"regex": r"(self\.(name|value) = [a-z]{1,4}\n){2,4}"}},
    "temperature": lambda *_: {"temperature": 0.0},
    "top_k": lambda *_: {"top_k": 3},
    "top_p": lambda *_: {"top_p": 0.4},
}
# Only with a reasoning parser: tests/engine/test_exactness.py.
ELSEWHERE = {"thinking_token_budget"}
FIELDS_WITH_VALUES = _VALUES.keys() | ELSEWHERE


def values(tokens: Sequence[int], words: Sequence[str], fields: Sequence[str]) -> list[Params]:
    """Returns parameters for each of `fields` that has a value here.

    Args:
        tokens: the output without parameters.
        words: its text, token by token.
        fields: names of fields.
    """
    return [_VALUES[name](tokens, words) for name in fields if name in _VALUES]
