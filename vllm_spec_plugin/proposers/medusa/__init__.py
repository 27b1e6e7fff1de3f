"""Drafting with Medusa heads: small networks on the target's last hidden state (Cai et al., arXiv 2401.10774)."""
