"""`vllm-spec init`, `convert` and `schema`: examples, converted settings and the schema of a plugin.yaml."""

import re
import sys
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from vllm_spec_plugin.schema.errors import UserError, unknown_word

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
        bundled = r" (This one is|These are) bundled; (its|their) target is\s+(# )?\s*vllm_spec_plugin/models/target\."
        text = re.sub(bundled, "", text)
    return text.replace(f"configs/{method}.yaml", name)


def convert(
    text: Annotated[
        str, typer.Argument(metavar="JSON", help="vLLM's JSON, or - for standard input.", show_default=False)
    ],
    out: Annotated[Path | None, typer.Option(help="File to write. [default: standard output]")] = None,
) -> None:
    """Convert vLLM's --speculative-config JSON to a plugin.yaml: vLLM's drafter, with the plugin's draft lengths.

    Comments in the result tell what differs. Keys that the installed vLLM does not know are refused.
    """
    import json

    import yaml

    from vllm_spec_plugin.schema.errors import show
    from vllm_spec_tools.vllm_json import convert_native

    source = "stdin" if text == "-" else "JSON"
    try:
        given = json.loads(sys.stdin.read() if text == "-" else text)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{source}: not JSON: line {error.lineno}, column {error.colno}: {error.msg}; allowed: an object such as "
            '\'{"method": "ngram", "num_speculative_tokens": 4}\''
        ) from None
    if not isinstance(given, dict):
        raise UserError(f"{source}: got {show(given)}; allowed: a JSON object")
    config, notes = convert_native(given, source)
    lines = ["# From vLLM's --speculative-config JSON.", *(f"# {note}" for note in notes)]
    result = "\n".join(lines) + "\n" + yaml.safe_dump(config, sort_keys=False)
    write_or_print(result, out)


def write_or_print(text: str, out: Path | None) -> None:
    """Writes a new file, or prints to standard output.

    Raises:
        UserError: the file exists.
    """
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UserError(f"{out}: exists; allowed: a new file") from None
    typer.echo(f"wrote {out}; check it: vllm-spec check {out} --model MODEL")


def schema() -> None:
    """Print the JSON schema of a plugin.yaml, with descriptions.

    Editors complete and check files that begin with `# yaml-language-server: $schema=plugin.schema.json`.
    """
    import json

    from vllm_spec_plugin.config import PluginConfig

    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    typer.echo(json.dumps(dialect | PluginConfig.model_json_schema(), indent=1))
