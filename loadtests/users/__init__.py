"""Who asks, and when."""
