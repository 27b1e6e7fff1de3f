"""The vLLM versions that the plugin supports."""

from importlib.metadata import PackageNotFoundError, version

from packaging.specifiers import SpecifierSet

SUPPORTED = SpecifierSet(">=0.32,<0.34")


class UnsupportedVersionError(RuntimeError):
    """The installed vLLM is missing or not supported."""


def check_vllm_version() -> None:
    """Raises `UnsupportedVersionError` unless a supported vLLM is installed."""
    from vllm_spec_plugin import __version__

    try:
        found = version("vllm")
    except PackageNotFoundError:
        raise UnsupportedVersionError(
            f"vllm_spec_plugin {__version__} needs vLLM {SUPPORTED}; none is installed"
        ) from None
    if not SUPPORTED.contains(found, prereleases=True):
        raise UnsupportedVersionError(
            f"vllm_spec_plugin {__version__} supports vLLM {SUPPORTED}, this is {found}; install a supported vLLM, or "
            "start without a plugin.yaml (vLLM's own --speculative-config JSON is unaffected)"
        )
