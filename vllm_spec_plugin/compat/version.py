"""The installed vLLM's version, by which functions of this package choose where vLLMs differ."""

from importlib.metadata import version

from packaging.version import Version

VERSION = Version(version("vllm")).release[:2]
