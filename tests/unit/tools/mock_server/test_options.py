"""Options are checked."""

from typing import Any

import pytest

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_plugin.tools.mock_server.options import MockOptions


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("port", 65536, "0 (any free one) to 65535"),
        ("model", "", "a name"),
        ("itl_ms", float("nan"), "0 or more"),
        ("jitter", 1.1, "0 to 1"),
        ("tokens_per_chunk", 0.5, "1 to 64"),
        ("max_model_len", 1, "2 or more"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name_with_what_is_allowed(name: str, value: Any, allowed: str) -> None:
    with pytest.raises(UserError) as caught:
        MockOptions(**{name: value})
    assert str(caught.value) == f"{name} is {value!r}: it must be {allowed}"
