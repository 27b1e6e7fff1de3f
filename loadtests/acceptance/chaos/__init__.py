"""Clients that leave, requests that make no sense, proposers that fail, a process that stands still."""
