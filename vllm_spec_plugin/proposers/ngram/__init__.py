"""Drafts by n-grams: copies the continuation of the latest match, or counts the continuations of all."""
