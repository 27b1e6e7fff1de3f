"""The suffix proposer."""
