"""Engines and servers that tools start: options, processes, what is read of them."""
