"""Fixtures of unit tests."""

from tests.unit.conftest import _one_thread, _warnings_reach_caplog

__all__ = ["_one_thread", "_warnings_reach_caplog"]
