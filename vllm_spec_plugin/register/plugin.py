"""The entry point that vLLM calls in every process, possibly more than once."""

import logging
import os

SWITCH = "VLLM_SPEC_PLUGIN"

logger = logging.getLogger("vllm.vllm_spec_plugin")


def switched_off() -> bool:
    """Whether the environment keeps the plugin out."""
    return os.environ.get(SWITCH, "1").strip().lower() in ("0", "false", "off", "no")


def register() -> None:
    """Teaches vLLM to take a plugin.yaml; without one, vLLM behaves as if this were not installed.

    `VLLM_SPEC_PLUGIN=0` switches it off altogether. Nothing is checked here: an unsupported vLLM is
    an error only for those who ask for the plugin.
    """
    if switched_off():
        return
    from vllm_spec_plugin.register import engine_args

    try:
        engine_args.patch()
    except (ImportError, AttributeError) as error:
        logger.warning("vllm_spec_plugin can't register with this vLLM and stays out: %s", error)
