"""Sizes of samples: enough to notice a fault, or with --full as large as before a release."""

import os

FULL = "VLLM_SPEC_FULL"


def is_full() -> bool:
    """Whether tests run with their full sizes."""
    return os.environ.get(FULL, "0") not in ("", "0")


def examples(default: int, full: int) -> int:
    """Number of examples that hypothesis tries."""
    return full if is_full() else default
