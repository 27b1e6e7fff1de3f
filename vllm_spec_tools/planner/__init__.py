"""Measures, predicts and compares speculation for a model and its traffic, and recommends it or not."""
