"""Replaces vLLM's functions by name, once, and logs if another package has patched them already."""

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any

logger = logging.getLogger("vllm.vllm_spec_plugin")
_MARK = "__vllm_spec_plugin_original__"


def wrap(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replaces `owner.name` by `make(original)`; a second call changes nothing.

    Args:
        owner: class or module.
        name: name of its attribute, a function.
        make: gets the present function and returns its replacement.

    Raises:
        AttributeError: this version of vLLM has no such function.
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


@contextlib.contextmanager
def replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    """Replaces a name of one of vLLM's modules within the context, where vLLM has no hook for what it builds."""
    stock = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, stock)


def _is_static(owner: Any, name: str) -> bool:
    return isinstance(getattr(owner, "__dict__", {}).get(name), staticmethod)
