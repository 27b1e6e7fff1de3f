"""Arms compared under so many concurrent streams, each of which always has a request in flight."""
