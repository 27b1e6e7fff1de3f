"""Resolves options that name a model."""

from pathlib import Path

from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.fetching import fetched

# vLLM reads the second one for models in Mistral's format.
_CONFIGS = ("config.json", "params.json")


def model_source(option: str, given: str | None, bundled: str) -> str:
    """Resolves an option that names a model: an absolute path of a folder, or a name on the hub.

    A name of `fetching.SOURCES` is fetched.

    Raises:
        UserError: it is a path without a model, or it cannot be fetched.
    """
    if given is None:
        return str(model_path(bundled))
    given = fetched(given)
    if Path(given).is_dir():
        if not any((Path(given) / name).is_file() for name in _CONFIGS):
            raise UserError(f"{option} {given}: the folder has no {_CONFIGS[0]}; allowed: a model's folder or hub name")
        return str(Path(given).absolute())
    if given.startswith(("/", "./", "../", "~")):
        raise UserError(f"{option} {given}: no such folder; allowed: a model's folder or its name on the hub")
    return given
