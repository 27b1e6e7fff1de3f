"""Keys of sections whose proposers learn from texts that have ended: what goes together."""

from vllm_spec_plugin.schema.errors import show

DEFAULT_SHARED_TOKENS = 1_000_000


def sharing_problems(shared: bool, shared_tokens: int | None, shared_scope: str | None) -> list[tuple[str, str]]:
    """Keys that do not go with `shared`, each with what is wrong."""
    given = {"shared_tokens": shared_tokens, "shared_scope": shared_scope}
    if not shared:
        text = "but proposer.shared is false, so no texts are kept"
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
