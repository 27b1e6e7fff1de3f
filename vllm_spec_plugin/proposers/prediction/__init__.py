"""Drafts from a request's predicted output."""
