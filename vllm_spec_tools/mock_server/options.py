"""Defines the options of `vllm-spec mock-server`."""

from dataclasses import dataclass
from typing import Annotated

import typer

MAX_MODEL_LEN = 32768
"""Maximum number of tokens of prompt and output together."""


@dataclass(frozen=True)
class MockOptions:
    """Model, speed and failures of the mock server; `chunk_plan.py` has the rules of chunks and failures."""

    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free one.")] = 8000
    model: Annotated[str, typer.Option(help="Model name in its responses.")] = "mock"
    ttft_ms: Annotated[float, typer.Option(min=0, help="Time to the first chunk, in milliseconds.")] = 50.0
    itl_ms: Annotated[float, typer.Option(min=0, help="Time between chunks, in milliseconds.")] = 10.0
    tokens_per_chunk: Annotated[
        float,
        typer.Option(
            min=1,
            max=64,
            help="Mean tokens per chunk, as with speculation: 2.5 draws from 1 to 4. The first chunk has one token.",
        ),
    ] = 1.0
    error_rate: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Share of requests that fail, evenly spread: alternately with HTTP 500, an error event in the stream, "
            "and a closed connection.",
        ),
    ] = 0.0
    max_running: Annotated[
        int, typer.Option(min=0, help="Maximum requests that run at once; others wait. 0 is no limit.")
    ] = 0
    seed: Annotated[int, typer.Option(help="Seed of texts and chunk sizes.")] = 0
