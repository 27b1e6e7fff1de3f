"""Rules of serving with drafts, and the answer of every way to draft to each; docs/support.md is written from them."""
