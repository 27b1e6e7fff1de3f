"""Drafts what a request predicts its output to be."""
