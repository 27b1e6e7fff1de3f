"""Measures what an engine's step takes beside the models: host time by part, ours, stock vLLM's and without drafts."""
