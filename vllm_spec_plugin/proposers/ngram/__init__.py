"""Guesses from the request's own text: copying a repetition, or counting what followed."""

from vllm_spec_plugin.proposers.ngram.proposer import NgramProposer

__all__ = ["NgramProposer"]
