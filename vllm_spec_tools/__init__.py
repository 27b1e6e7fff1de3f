"""Commands for operators: checks, plans, benchmarks, certificates, training. Nothing that serves imports it."""

__version__ = "0.3.0"
