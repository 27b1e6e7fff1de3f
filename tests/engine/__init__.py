"""Tests against a real vLLM engine: its output with speculation is its output without."""
