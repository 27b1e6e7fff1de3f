"""Proposers with models of their own, on V1."""
