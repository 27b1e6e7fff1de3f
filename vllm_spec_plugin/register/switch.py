"""The environment variables that keep the plugin out of servers."""

import os
from collections.abc import Mapping

NAME = "vllm_spec_plugin"
# vLLM's list of allowed plugins, and the plugin's own switch.
ALLOWED, SWITCH = "VLLM_PLUGINS", "VLLM_SPEC_PLUGIN"


def reason_off(environment: Mapping[str, str] = os.environ) -> str:
    """Returns what in the environment keeps the plugin out of servers; empty if nothing does."""
    switch, allowed = environment.get(SWITCH, "1"), environment.get(ALLOWED)
    if switch.strip().lower() in ("0", "false", "off", "no"):
        return f"{SWITCH}={switch}"
    if allowed is not None and NAME not in allowed.split(","):
        return f"{ALLOWED}={allowed} leaves {NAME} out"
    return ""
