"""Formulas of Leviathan et al. (2023) for speculative decoding, and the same with measured costs."""
