"""How many tokens are drafted for each request in each step."""
