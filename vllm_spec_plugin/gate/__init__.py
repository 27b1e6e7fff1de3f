"""Refuses at start-up what cannot be served exactly with drafts."""
