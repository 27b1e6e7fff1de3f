"""KV blocks of drafts and of the branches of trees."""
