"""Measurements on a GPU: models with a real model's cost and the bundled models' outputs, and a run of all arms."""
