"""How much is sampled and tried: enough to notice what breaks, or with --full as much as before a release."""

import os

FULL = "VLLM_SPEC_FULL"


def is_full() -> bool:
    """Whether tests run with their full sizes."""
    return os.environ.get(FULL, "0") not in ("", "0")


def examples(default: int, full: int) -> int:
    """How many examples hypothesis tries."""
    return full if is_full() else default
