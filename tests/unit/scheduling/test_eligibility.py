"""Which requests are served without drafts, and whose texts they share."""

import pytest

from vllm_spec_plugin.scheduling.eligibility import scope_of


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
