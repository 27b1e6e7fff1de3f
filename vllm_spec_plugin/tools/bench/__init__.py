"""Measuring engines side by side: arms in processes of their own, rounds in turn, a report of ratios.

`load/` compares whole servers' work under concurrent streams, `drafting/` what drafting costs within a step; both
stand on what is here. `ngram` and `policy_cost` measure parts without an engine.
"""
