"""Options of `python -m benchmarks`."""
