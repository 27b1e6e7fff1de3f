"""`vllm-spec convert`: turns vLLM's `--speculative-config` JSON into a plugin.yaml."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from vllm_spec_plugin.schema.errors import UserError


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
