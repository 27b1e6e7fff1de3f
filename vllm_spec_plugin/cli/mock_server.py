"""`vllm-spec mock-server`: a server for testing load tools, dashboards and alerts."""

from typing import Annotated

import typer


def mock_server(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for one that is free.")] = 8000,
    model: Annotated[str, typer.Option(help="Name of the model it pretends to serve.")] = "mock",
    ttft_ms: Annotated[float, typer.Option(min=0, help="Milliseconds to the first chunk.")] = 50.0,
    itl_ms: Annotated[float, typer.Option(min=0, help="Milliseconds from chunk to chunk.")] = 10.0,
    jitter: Annotated[
        float, typer.Option(min=0, max=1, help="Draw each wait evenly from 1 - JITTER to 1 + JITTER times its length.")
    ] = 0.0,
    tokens_per_chunk: Annotated[
        float,
        typer.Option(
            min=1,
            max=64,
            help="Mean tokens of a chunk, as a speculating server has it: 2.5 draws from 1 to 4. The first has one.",
        ),
    ] = 1.0,
    error_rate: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Share of requests that fail, evenly spread: by turns with HTTP 500, with an error event in the "
            "stream, with a cut connection.",
        ),
    ] = 0.0,
    max_running: Annotated[
        int, typer.Option(min=0, help="Most requests that run at once; others wait. 0 for no limit.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Of texts, chunk sizes and jitter.")] = 0,
) -> None:
    """Serve an OpenAI-compatible API without a model: load tools are tested in seconds.

    Serves /v1/completions, /v1/chat/completions, /v1/models, /health and /metrics. The metrics are vLLM's and the
    plugin's, so a dashboard or an alert can be tried. Texts are nonsense, but a function of seed and prompt. A response
    has max_tokens tokens, whatever ignore_eos says. A request with "vllm_xargs": {"spec": "off"} gets one token per
    chunk.
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
    run_mock_server(options, lambda url: typer.echo(f"{url}/v1 serves {model!r}, a mock. Ctrl-C ends it."))
