"""Drafting with an EAGLE-3 head: a layer on the target's hidden states (Li et al., arXiv 2503.01840)."""
