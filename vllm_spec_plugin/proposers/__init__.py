"""Making guesses."""
