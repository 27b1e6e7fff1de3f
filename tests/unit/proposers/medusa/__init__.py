"""The Medusa proposer."""
