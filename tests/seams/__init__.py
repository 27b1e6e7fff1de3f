"""Lists the names of vLLM that the plugin depends on, and compares them with another version of vLLM."""
