"""The keys of proposers that also draft from finished responses, and their allowed combinations.

A section names them in its own order: `shared: bool = SHARED`, `shared_tokens: SharedTokens = SHARED_TOKENS`, and
`shared_scope: SharedScope = SHARED_SCOPE`.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from vllm_spec_plugin.schema.errors import show

DEFAULT_SHARED_TOKENS = 1_000_000

SharedTokens = Annotated[int, Field(ge=1024, le=10**9)] | None
SharedScope = Literal["salt", "global"] | None

SHARED: Any = Field(
    default=False,
    description="Also drafts from the text of finished requests with the same cache_salt.",
    json_schema_extra={"allowed": "true or false"},
)
SHARED_TOKENS: Any = Field(
    default_factory=lambda known: DEFAULT_SHARED_TOKENS if known["shared"] else None,
    description="Maximum tokens of finished requests that are kept, in all; only with shared.",
)
SHARED_SCOPE: Any = Field(
    default_factory=lambda known: "salt" if known["shared"] else None,
    description="Scope of requests without a cache_salt: salt keeps each one private, global shares among them; only "
    "with shared.",
)


def sharing_problems(shared: bool, shared_tokens: int | None, shared_scope: str | None) -> list[tuple[str, str]]:
    """Returns each key that conflicts with `shared`, and the message about it."""
    given = {"shared_tokens": shared_tokens, "shared_scope": shared_scope}
    if not shared:
        text = "but proposer.shared is false, so no text is kept"
        allowed = "leave it out, or set proposer.shared to true"
        return [
            (key, f"got {show(value)}, {text}; allowed: {allowed}") for key, value in given.items() if value is not None
        ]
    allowed_by = {
        "shared_tokens": f"a whole number from 1024 to 1000000000, or leave it out for {DEFAULT_SHARED_TOKENS}",
        "shared_scope": "salt, global, or leave it out for salt",
    }
    text = "got nothing (null), but proposer.shared is true"
    return [(key, f"{text}; allowed: {allowed_by[key]}") for key, value in given.items() if value is None]
