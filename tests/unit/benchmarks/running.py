"""Runs `python -m benchmarks` in this process."""

import functools

from benchmarks.__main__ import app
from tests.unit.cli import running

run = functools.partial(running.run, program=app)
