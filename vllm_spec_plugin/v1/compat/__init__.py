"""Private names of vLLM that only its V1 runner has, or that only own models need."""
