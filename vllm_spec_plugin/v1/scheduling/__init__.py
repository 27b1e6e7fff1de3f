"""The scheduler of own proposers on V1."""
