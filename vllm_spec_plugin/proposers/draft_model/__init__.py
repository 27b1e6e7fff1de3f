"""Guesses by a small model that has the target's vocabulary."""
