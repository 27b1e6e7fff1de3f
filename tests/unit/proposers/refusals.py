"""What every refusal is: one printable text that begins with its file and key, and says what is allowed."""

from collections.abc import Callable
from typing import Any

import pytest

from vllm_spec_plugin.schema.errors import ConfigError


def refusal(call: Callable[..., Any], *args: Any, start: str = "", kind: type[Exception] = ConfigError) -> str:
    """Returns the message with which a call is refused, without the start that it must have."""
    with pytest.raises(kind) as caught:
        call(*args)
    message = str(caught.value)
    assert message.isprintable()
    assert "; allowed" in message
    assert message.startswith(start)
    return message.removeprefix(start)
