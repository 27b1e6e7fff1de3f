"""Drafting methods, and the contract that they share."""
