"""What vLLM calls when it starts: where a plugin.yaml comes in."""
