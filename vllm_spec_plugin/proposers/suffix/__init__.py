"""Drafts from repeated text by a suffix tree: the continuation of the longest match, of any length."""
