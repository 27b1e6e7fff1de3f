"""Training EAGLE-3 heads for a target whose own weights stay as they are."""
