"""Counting what speculation does and costs, and showing it."""
