"""The entry point that vLLM calls in every process, possibly more than once."""

import logging
import os
from collections.abc import Mapping

NAME = "vllm_spec_plugin"
# vLLM's list of allowed plugins, and the plugin's own switch.
ALLOWED, SWITCH = "VLLM_PLUGINS", "VLLM_SPEC_PLUGIN"

logger = logging.getLogger("vllm.vllm_spec_plugin")


def reason_off(environment: Mapping[str, str] = os.environ) -> str:
    """Returns what in the environment keeps the plugin out of servers; empty if nothing does."""
    switch, allowed = environment.get(SWITCH, "1"), environment.get(ALLOWED)
    if switch.strip().lower() in ("0", "false", "off", "no"):
        return f"{SWITCH}={switch}"
    if allowed is not None and NAME not in allowed.split(","):
        return f"{ALLOWED}={allowed} leaves {NAME} out"
    return ""


def register() -> None:
    """Makes vLLM accept a plugin.yaml; without one, vLLM behaves as if the plugin were not installed.

    Where `reason_off` has a reason, a plugin.yaml is accepted and not read: vLLM serves without speculation. Versions
    are not checked here: an unsupported vLLM is an error only with a plugin.yaml.
    """
    from vllm_spec_plugin.register import engine_args

    try:
        engine_args.patch()
    except (ImportError, AttributeError) as error:
        logger.warning("plugin disabled: incompatible vLLM: %s", error)
