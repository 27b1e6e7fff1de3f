"""The entry point that vLLM calls in every process, possibly more than once."""

import logging
import os

SWITCH = "VLLM_SPEC_PLUGIN"

logger = logging.getLogger("vllm.vllm_spec_plugin")


def switched_off() -> bool:
    """Whether the environment disables the plugin."""
    return os.environ.get(SWITCH, "1").strip().lower() in ("0", "false", "off", "no")


def register() -> None:
    """Makes vLLM accept a plugin.yaml; without one, vLLM behaves as if the plugin were not installed.

    `VLLM_SPEC_PLUGIN=0` disables it. Versions are not checked here: an unsupported vLLM is an error only with a
    plugin.yaml.
    """
    if switched_off():
        return
    from vllm_spec_plugin.register import engine_args

    try:
        engine_args.patch()
    except (ImportError, AttributeError) as error:
        logger.warning("plugin disabled: incompatible vLLM: %s", error)
