"""Measures the repository itself; not in the wheel."""
