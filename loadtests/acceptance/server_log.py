"""What a server's log says of things that went wrong. Pure."""

import re

from loadtests.acceptance.verdicts import Verdict

# vLLM names the process first: "(EngineCore pid=7) ERROR 11-22 01:02:03 [core.py:1] ...".
_BAD = re.compile(r"^(\([^)]*\) )?(ERROR|CRITICAL)\b|Traceback \(most recent call last\)")
# vLLM 0.32 ends its engine before the task that waits for it, which may then log the engine's death, with or without
# this project (https://github.com/vllm-project/vllm/issues/48745).
_ENDING, _WAITING, _DEATH = "[shutdown] API server: shutdown triggered", "[async_llm.py:", "EngineDeadError"
_MOST_SHOWN = 200


def bad_lines(text: str) -> list[str]:
    """Lines that report an error, or begin a traceback; but for what vLLM logs of an engine that is told to end."""
    running, _, ending = text.partition(_ENDING)
    last_words = [line for line in ending.splitlines() if _BAD.search(line)]
    if any(_WAITING in line and _DEATH in line for line in last_words):
        last_words = [line for line in last_words if _WAITING not in line]
    return [line for line in running.splitlines() if _BAD.search(line)] + last_words


def log_check(part: str, text: str) -> Verdict:
    """Whether a log has no such line."""
    found = bad_lines(text)
    first = f"; the first: {found[0][:_MOST_SHOWN]}" if found else ""
    lines = len(text.splitlines())
    check = "the server's log has no error and no traceback"
    return Verdict(part, check, bool(lines) and not found, f"{len(found)} of {lines} lines{first}")
