"""Tests on a GPU: `make test-gpu`. Without one they are skipped, but for --rehearse, which runs them on a CPU."""
