"""Recorded outcomes of drafts and costs of steps, and draft-length policies replayed against them."""
