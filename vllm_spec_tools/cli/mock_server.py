"""`vllm-spec mock-server`: serves without a model, to test load tools, dashboards and alerts."""

import typer

from vllm_spec_tools.cli.options import grouped
from vllm_spec_tools.mock_server.options import MockOptions


@grouped
def mock_server(*, options: MockOptions) -> None:
    """Serve an OpenAI-compatible API without a model, to test load tools in seconds.

    Serves /v1/completions, /v1/chat/completions, /v1/models, /health and /metrics. The metrics are vLLM's and the
    plugin's, to test dashboards and alerts. Texts are meaningless, and depend on seed and prompt only. A response
    always has max_tokens tokens, with or without ignore_eos. A request with "vllm_xargs": {"spec": "off"} gets one
    token per chunk.
    """
    from vllm_spec_tools.mock_server.running import run_mock_server

    model = options.model
    run_mock_server(options, lambda url: typer.echo(f"{url}/v1 serves {model!r}, a mock. Press Ctrl-C to stop."))
