"""Calls the proposers in the worker, and runs draft models."""
