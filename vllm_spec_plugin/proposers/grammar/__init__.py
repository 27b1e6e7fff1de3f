"""Drafts what a request's grammar forces."""
