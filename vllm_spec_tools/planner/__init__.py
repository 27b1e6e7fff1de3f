"""Whether speculation pays for a model and its traffic, and which: measured, predicted, verified, recommended."""
