"""Policies of draft lengths: the tokens to draft for each request in each step."""
