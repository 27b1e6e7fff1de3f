"""Training Medusa heads for a target whose own weights stay as they are."""

from vllm_spec_plugin.schema.errors import UserError


class TrainingError(UserError, ValueError):
    """Training that cannot be begun or gone on with; str() is the whole message."""

    exit_status = 1
