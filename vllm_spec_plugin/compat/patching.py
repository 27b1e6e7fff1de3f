"""Replacing vLLM's functions: once, by name, and never over somebody else's replacement unnoticed."""

import functools
import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger("vllm.vllm_spec_plugin")
_MARK = "__vllm_spec_plugin_original__"


def wrap(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Puts `make(original)` in the place of `owner.name`; a second call changes nothing.

    Args:
        owner: class or module.
        name: its attribute, a function.
        make: gets the function found there and returns the one to put there.

    Raises:
        AttributeError: vLLM has no such function: not the version this was written for.
    """
    found = getattr(owner, name)
    if hasattr(found, _MARK):
        return
    module = getattr(found, "__module__", "") or ""
    if module.split(".")[0] != "vllm":
        logger.warning(
            "%s.%s is already patched by %s; the plugin wraps the patched version", owner.__name__, name, module
        )
    replacement = functools.wraps(found)(make(found))
    setattr(replacement, _MARK, found)
    setattr(owner, name, staticmethod(replacement) if _is_static(owner, name) else replacement)
    logger.debug("wrapped %s.%s", owner.__name__, name)


def _is_static(owner: Any, name: str) -> bool:
    return isinstance(getattr(owner, "__dict__", {}).get(name), staticmethod)
