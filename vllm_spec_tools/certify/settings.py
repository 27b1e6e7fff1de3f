"""Sampling parameters whose outputs are tested."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vllm_spec_plugin.config.request_options import SPEC_PREDICTION
from vllm_spec_tools.engines.jobs import CertifyRequest

Settings = dict[str, dict[str, Any]]


def sampling_settings(likely: Sequence[int], quick: bool, by_vllm: bool = False) -> Settings:
    """The settings by name.

    Args:
        likely: token ids that often follow the prompts, four at least; a logit bias makes some of them more likely.
        quick: fewer settings that have the same parameters between them.
    """
    bias = {likely[0]: -2.0, likely[1]: 2.0, likely[2]: 1.0, likely[3]: 2.0}
    # Negative ones make what was just drafted likelier again, so that a count that is off by it shows.
    penalties = {"repetition_penalty": 1.1, "presence_penalty": -1.0, "frequency_penalty": -1.5}
    settings: Settings = {
        "temperature 1": {},
        "temperature 0.5": {"temperature": 0.5},
        "top-k": {"top_k": 20},
        "top-p": {"top_p": 0.9},
        "min-p": {"min_p": 0.05},
        "penalties": penalties,
        "logit bias": {"logit_bias": bias},
        "seeds": {"seed": 0},
        "all together": penalties | {"temperature": 0.8, "top_p": 0.95, "top_k": 50, "min_p": 0.02, "logit_bias": bias},
    }
    if quick:
        for name in ("top-k", "top-p"):
            del settings[name]
    if by_vllm:
        refused = {"min_p", "logit_bias"}
        settings = {
            name: {key: value for key, value in params.items() if key not in refused}
            for name, params in settings.items()
            if not params or params.keys() - refused
        }
    return {name: {"temperature": 1.0} | params for name, params in settings.items()}


def predicting(requests: Sequence[CertifyRequest], outputs: Sequence[Sequence[int]]) -> list[CertifyRequest]:
    """Returns the requests: of three the first has an output as its prediction, the second one turned round.

    Args:
        outputs: known ones, one per request; fewer are repeated.
    """
    found = []
    for number, request in enumerate(requests):
        tokens = list(outputs[number % len(outputs)])
        if number % 3 == 1:
            tokens.reverse()
        given = {} if number % 3 == 2 else {"extra_args": {SPEC_PREDICTION: tokens}}
        found.append(replace(request, params={**request.params, **given}))
    return found
