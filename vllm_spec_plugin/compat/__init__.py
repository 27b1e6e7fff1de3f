"""The only package that imports or patches vLLM's private names: one file per area of vLLM."""
