"""Training of the bundled models: `python -m models`."""
