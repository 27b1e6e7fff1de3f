"""vLLM's own drafters, whose draft lengths the plugin chooses."""
