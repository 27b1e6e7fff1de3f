"""Load tests of a running server."""
