"""The installed vLLM's version, by which functions of this package choose where vLLMs differ."""

from packaging.version import Version

from vllm_spec_plugin.compat.installed import installed_version

VERSION = Version(installed_version()).release[:2]
