"""Predicted outputs of requests: right and useless ones."""

from collections.abc import Sequence
from dataclasses import replace

from vllm_spec_plugin.config.request_options import SPEC_PREDICTION
from vllm_spec_tools.certify.jobs import Request


def predicting(requests: Sequence[Request], outputs: Sequence[Sequence[int]]) -> list[Request]:
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
