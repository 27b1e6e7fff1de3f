"""The bundled models: a target that writes Python, and a draft model, Medusa heads and an EAGLE-3 head for it."""

from pathlib import Path

NAMES = ("target", "draft", "medusa", "eagle3")


def model_path(name: str) -> Path:
    """The folder of a bundled model, in Hugging Face layout, or of heads for the target.

    Args:
        name: "target", "draft", "medusa" or "eagle3".

    Raises:
        ValueError: there is no model of that name.
    """
    if name not in NAMES:
        raise ValueError(f"no bundled model {name!r}: there are {', '.join(NAMES)}")
    return Path(__file__).parent / name
