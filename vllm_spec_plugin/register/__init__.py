"""Registers the plugin with vLLM, and turns a plugin.yaml into engine arguments."""
