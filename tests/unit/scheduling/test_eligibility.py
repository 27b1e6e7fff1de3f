"""Which requests are served without drafts, and whose texts they share."""

from typing import Any

import pytest

from vllm_spec_plugin.metrics.counters import WITHOUT_DRAFTS
from vllm_spec_plugin.scheduling.eligibility import scope_of, why_without_drafts

ORDINARY: dict[str, Any] = {"samples": True, "thinking_token_budget": None, "resumable": False, "prompt_embeds": None}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"samples": False}, "pooling"),
        ({"thinking_token_budget": 0}, "thinking_budget"),
        ({"resumable": True}, "resumable"),
        ({"prompt_embeds": object()}, "prompt_embeds"),
    ],
)
def test_each_reason_is_named(given, reason):
    assert why_without_drafts(**ORDINARY | given) == reason
    assert reason in WITHOUT_DRAFTS


@pytest.mark.parametrize(
    ("cache_salt", "shared_scope", "scope"),
    [
        ("secret", "salt", "salt:secret"),
        ("secret", "global", "salt:secret"),
        (None, "salt", None),
        ("", "salt", None),
        (None, "global", "global"),
        ("", "global", "global"),
    ],
)
def test_the_scope_is_the_salt(cache_salt, shared_scope, scope):
    assert scope_of(cache_salt, shared_scope) == scope


@pytest.mark.parametrize("salt", ["global", "salt:", ":", "salt:global"])
def test_no_salt_names_the_scope_of_those_without(salt):
    assert scope_of(salt, "global") != scope_of(None, "global")
