"""Measuring engines side by side: arms in processes of their own, rounds in turn, a report of ratios.

`load/` compares whole engines under concurrent streams.
"""
