"""The command `vllm-spec`, whose subcommands are a wheel of their own, vllm-spec-tools."""

import sys


def main() -> None:
    """Runs a subcommand; without vllm-spec-tools, says what to install and ends with status 2."""
    try:
        from vllm_spec_tools.cli import app
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("vllm_spec_tools"):
            raise
        print("error: vllm-spec needs vllm-spec-tools; install it: pip install vllm-spec-tools", file=sys.stderr)
        raise SystemExit(2) from None
    app()
