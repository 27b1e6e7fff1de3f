"""`vllm-spec loadtest`: runs Locust with the project's users, from any folder."""

import os
import sys
from importlib.util import find_spec

import typer

from vllm_spec_tools.cli.errors import needs_extra


def loadtest(context: typer.Context) -> None:
    """Put an OpenAI-compatible server under load with Locust; all options are Locust's and the load tests'.

    For example: vllm-spec loadtest --host http://localhost:8000 --headless -u 16 -t 2m --report report.json
    """
    if find_spec("locust") is None:
        needs_extra("locust")
    users = find_spec("loadtests.locustfile")
    assert users is not None, "loadtests is installed with this package"
    assert users.origin is not None
    os.execv(sys.executable, [sys.executable, "-m", "locust", "-f", users.origin, *context.args])
