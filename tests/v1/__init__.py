"""Tests of what only vLLM's V1 runner needs."""
