"""Verification: accepts draft tokens so that the output distribution is the target's. Mathematics, without vLLM."""
