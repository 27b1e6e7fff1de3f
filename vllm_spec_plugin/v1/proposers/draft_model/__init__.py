"""Drafts with a small model that has the target's vocabulary."""
