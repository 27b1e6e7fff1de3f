"""The target's forward pass with drafts: vLLM's runner for CPU and CUDA, and the layout of trees."""
