"""Which requests are served without drafts."""

from types import SimpleNamespace

import pytest

from vllm_spec_plugin.metrics.counters import WITHOUT_DRAFTS
from vllm_spec_plugin.scheduling.request_gate import why_without_drafts


def request(**given):
    params = SimpleNamespace(thinking_token_budget=given.pop("thinking_token_budget", None))
    return SimpleNamespace(**{"sampling_params": params, "resumable": False, "prompt_embeds": None} | given)


def test_an_ordinary_request_may_have_drafts():
    assert why_without_drafts(request()) is None


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"thinking_token_budget": 0}, "thinking_budget"),
        ({"resumable": True}, "resumable"),
        ({"prompt_embeds": object()}, "prompt_embeds"),
        ({"sampling_params": None}, "pooling"),
    ],
)
def test_each_reason_is_named(given, reason):
    assert why_without_drafts(request(**given)) == reason
    assert reason in WITHOUT_DRAFTS
