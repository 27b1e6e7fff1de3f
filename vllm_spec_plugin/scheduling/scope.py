"""Which requests may draft from each other's texts."""

from typing import Literal

SharedScope = Literal["salt", "global"]


def scope_of(cache_salt: str | None, shared_scope: SharedScope) -> str | None:
    """The scope of a request; None is private: it neither reads nor writes anything shared.

    Args:
        cache_salt: what the request was sent with, the secret of those who may share. Empty is none.
        shared_scope: "salt" keeps requests without a salt private; "global" gives all of them one scope, which
            no salt can name.
    """
    if cache_salt:
        return f"salt:{cache_salt}"
    return "global" if shared_scope == "global" else None
