"""A process that answers as an arm does, without an engine."""

import os
from typing import Any

from vllm_spec_plugin.schema.errors import ConfigError
from vllm_spec_tools.engine_child import answer_questions


def build(arguments: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    if arguments["model"] == "none":
        raise ValueError("no weights")
    if arguments["model"] == "refused":
        raise ConfigError("no such runner")
    return {"pid": os.getpid()}, lambda question: question


if __name__ == "__main__":
    answer_questions(build)
