"""N-grams, drafted by the suffix proposer."""
