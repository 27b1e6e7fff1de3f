"""Proves how the served engine behaves under load: `python -m loadtests.acceptance`."""
