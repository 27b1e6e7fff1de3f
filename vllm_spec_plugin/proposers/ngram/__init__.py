"""Guesses from the request's own text: copying a repetition, or counting what followed."""
