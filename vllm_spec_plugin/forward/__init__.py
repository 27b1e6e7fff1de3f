"""Running on vLLM's workers: drafting, verifying and keeping book of both."""
