"""Formulas of Leviathan et al. (2023), which tests of the planner compare with."""
