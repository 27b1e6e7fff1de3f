"""`vllm-spec demo`: serves a target without and with a draft model, and compares the answers."""
