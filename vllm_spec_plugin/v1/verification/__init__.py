"""Verification on V1: accepts draft tokens so that the output distribution is the target's."""
