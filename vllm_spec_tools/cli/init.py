"""`vllm-spec init`: prints or writes a plugin.yaml with every key explained."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from vllm_spec_plugin.schema.errors import UserError, unknown_word
from vllm_spec_tools.cli.convert import write_or_print

# The bundled models, as the files name them.
_BUNDLED = "../vllm_spec_plugin/models/"


def init(
    method: Annotated[str, typer.Argument(help="A method, or a variant such as medusa_tree.", show_default=False)],
    model: Annotated[
        str | None, typer.Option(help="Folder or hub name of the draft model or heads. [default: bundled]")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File to write. [default: standard output]")] = None,
) -> None:
    """Print or write a plugin.yaml with every key explained: the project's example of METHOD."""
    write_or_print(example(method, model, str(out or "plugin.yaml")), out)


def example(method: str, model: str | None = None, name: str = "plugin.yaml") -> str:
    """Returns the project's example of a method, for any machine.

    Raises:
        UserError: there is no such method, or it has no model.
    """
    root = Path(str(files("vllm_spec_tools")))
    examples = {path.stem: path for path in sorted((root / "configs").glob("*.yaml"))}
    if method not in examples:
        raise UserError(f"METHOD: {unknown_word(method, list(examples))}")
    text = examples[method].read_text(encoding="utf-8")
    if model is not None and _BUNDLED not in text:
        raise UserError(f"--model: got '{model}', but {method} has no model; allowed: leave it out")
    # Bundled models are found in any installation of the package.
    text = re.sub(re.escape(_BUNDLED) + r"\w+", lambda found: model or found[0].removeprefix("../"), text)
    text = text.replace(
        "\n", "\n# Editors complete and check it by that file: vllm-spec schema > plugin.schema.json\n", 1
    )
    if model is not None:
        text = re.sub(r" This one is bundled; its target is\s+(# )?\s*vllm_spec_plugin/models/target\.", "", text)
        text = re.sub(r" These are bundled; their target is\s+(# )?\s*vllm_spec_plugin/models/target\.", "", text)
    return text.replace(f"configs/{method}.yaml", name)
