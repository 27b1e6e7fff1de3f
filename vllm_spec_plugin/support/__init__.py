"""What can be served exactly with drafts, and what is refused at start-up. Pure."""
