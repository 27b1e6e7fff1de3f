"""How many users there are, and when requests arrive."""
