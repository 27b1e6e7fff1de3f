"""`vllm-spec mock-server`: serves without a model, to test load tools, dashboards and alerts."""

from typing import Annotated

import typer


def mock_server(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free one.")] = 8000,
    model: Annotated[str, typer.Option(help="Model name in its responses.")] = "mock",
    ttft_ms: Annotated[float, typer.Option(min=0, help="Time to the first chunk, in milliseconds.")] = 50.0,
    itl_ms: Annotated[float, typer.Option(min=0, help="Time between chunks, in milliseconds.")] = 10.0,
    jitter: Annotated[
        float,
        typer.Option(min=0, max=1, help="Draw each wait uniformly from 1 - JITTER to 1 + JITTER times its length."),
    ] = 0.0,
    tokens_per_chunk: Annotated[
        float,
        typer.Option(
            min=1,
            max=64,
            help="Mean tokens per chunk, as with speculation: 2.5 draws from 1 to 4. The first chunk has one token.",
        ),
    ] = 1.0,
    error_rate: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Share of requests that fail, evenly spread: alternately with HTTP 500, an error event in the stream, "
            "and a closed connection.",
        ),
    ] = 0.0,
    max_running: Annotated[
        int, typer.Option(min=0, help="Maximum requests that run at once; others wait. 0 is no limit.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Seed of texts, chunk sizes and jitter.")] = 0,
) -> None:
    """Serve an OpenAI-compatible API without a model, to test load tools in seconds.

    Serves /v1/completions, /v1/chat/completions, /v1/models, /health and /metrics. The metrics are vLLM's and the
    plugin's, to test dashboards and alerts. Texts are meaningless, and depend on seed and prompt only. A response
    always has max_tokens tokens, with or without ignore_eos. A request with "vllm_xargs": {"spec": "off"} gets one
    token per chunk.
    """
    from vllm_spec_plugin.tools.mock_server.options import MockOptions
    from vllm_spec_plugin.tools.mock_server.running import run_mock_server

    options = MockOptions(
        host=host,
        port=port,
        model=model,
        ttft_ms=ttft_ms,
        itl_ms=itl_ms,
        jitter=jitter,
        tokens_per_chunk=tokens_per_chunk,
        error_rate=error_rate,
        max_running=max_running,
        seed=seed,
    )
    run_mock_server(options, lambda url: typer.echo(f"{url}/v1 serves {model!r}, a mock. Press Ctrl-C to stop."))
