"""The n-gram proposer against brute force."""
