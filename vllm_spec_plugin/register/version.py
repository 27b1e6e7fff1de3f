"""The vLLM versions that the plugin supports."""

import sys

from packaging.specifiers import SpecifierSet

from vllm_spec_plugin.compat.installed import installation_fault, installed_version, is_cpu_build
from vllm_spec_plugin.schema.errors import ConfigError
from vllm_spec_plugin.version import __version__

SUPPORTED = SpecifierSet(">=0.32,<0.34")
_SHOWN = ",".join(sorted(map(str, SUPPORTED), reverse=True))
_CUDA = f"`pip install --force-reinstall 'vllm{_SHOWN}'`"
_CPU = "`make clean setup` in the plugin's source folder"


def check_vllm() -> None:
    """Checks that a supported vLLM is installed, and that its parts belong together.

    Raises:
        ConfigError: says what was found, what is supported and what to type.
    """
    found, fault = installed_version(), installation_fault()
    is_other = bool(found) and not SUPPORTED.contains(found, prereleases=True)
    if found and not fault and not is_other:
        return
    problem = f"half-assembled: {fault}" if fault else f"vLLM {found}" if found else "no vLLM"
    install = _CPU if is_cpu_build(found) else _CUDA if found else f"{_CUDA} (CUDA), or {_CPU} (CPU)"
    instead = "; without a plugin.yaml this vLLM serves unchanged" if is_other and not fault else ""
    raise ConfigError(
        f"vllm_spec_plugin {__version__} supports vLLM {_SHOWN}; found in {sys.prefix}: {problem}; run: "
        f"{install}{instead}"
    )
