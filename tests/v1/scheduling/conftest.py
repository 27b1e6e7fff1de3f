"""Fixtures of scheduling tests."""

from tests.unit.scheduling.conftest import clock

__all__ = ["clock"]
