"""The support matrix: every architecture with every way of drafting, through the engine."""
