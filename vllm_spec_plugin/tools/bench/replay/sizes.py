"""Sizes of a replay. Imports nothing heavy."""

from dataclasses import dataclass
from typing import Annotated

import typer


@dataclass(frozen=True)
class Sizes:
    """How much is replayed: options of `vllm-spec bench replay`."""

    tokens: Annotated[
        int, typer.Option(min=16, help="Output tokens per stream, or per phase of the workload switching.")
    ] = 400
    request_tokens: Annotated[int, typer.Option(min=2, help="Mean output tokens per request.")] = 96
    seeds: Annotated[int, typer.Option(min=1, help="Number of replays, each with another seed.")] = 3
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first replay.")] = 0
