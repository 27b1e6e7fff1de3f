"""The entry point that vLLM calls in every process, possibly more than once."""

import logging

logger = logging.getLogger("vllm.vllm_spec_plugin")


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
