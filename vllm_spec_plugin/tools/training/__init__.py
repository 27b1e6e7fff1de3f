"""Training Medusa heads for a target whose own weights stay as they are."""


class TrainingError(ValueError):
    """Training that cannot be begun or gone on with; str() is the whole message."""
