"""The bundled model family: a target that writes Python, and a draft distilled from it."""

from importlib.resources import files
from pathlib import Path

NAMES = ("target", "draft", "medusa")


def model_path(name: str) -> Path:
    """The folder of a bundled model, in Hugging Face layout, or of the target's Medusa heads.

    Args:
        name: "target", "draft" or "medusa".

    Raises:
        ValueError: there is no model of that name.
    """
    if name not in NAMES:
        raise ValueError(f"no bundled model {name!r}: there are {', '.join(NAMES)}")
    return Path(str(files("vllm_spec_plugin") / "models" / name))
