"""Training Medusa heads for a target whose own weights stay as they are."""
