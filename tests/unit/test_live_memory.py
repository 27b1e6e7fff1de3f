"""Memory in use, as the tests of served engines measure it."""

import tempfile
from pathlib import Path

import pytest

from tests.e2e import live_memory


def test_what_is_kept_is_measured_and_what_was_freed_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for key, value in live_memory.environment(folder).items():
            monkeypatch.setenv(key, value)
        live_memory.register()
        live_memory.measure(folder)
        [before] = live_memory.measure(folder).values()
        kept = [bytearray(10_000) for _ in range(2000)]
        [with_it] = live_memory.measure(folder).values()
        del kept
        [after] = live_memory.measure(folder).values()
    assert with_it.python_blocks - before.python_blocks > 2000
    assert with_it.allocated_bytes - before.allocated_bytes > 20e6
    assert with_it.resident_bytes - before.resident_bytes > 19e6
    assert abs(after.python_blocks - before.python_blocks) < 200
    assert abs(after.allocated_bytes - before.allocated_bytes) < 1e5
    assert after.resident_bytes - before.resident_bytes < 1e6
