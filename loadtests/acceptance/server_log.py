"""What a server's log says of things that went wrong. Pure."""

import re

from loadtests.acceptance.verdicts import Verdict

# vLLM names the process first: "(EngineCore pid=7) ERROR 11-22 01:02:03 [core.py:1] ...".
_BAD = re.compile(r"^(\([^)]*\) )?(ERROR|CRITICAL)\b|Traceback \(most recent call last\)")
_MOST_SHOWN = 200


def bad_lines(text: str) -> list[str]:
    """Lines that report an error, or begin a traceback."""
    return [line for line in text.splitlines() if _BAD.search(line)]


def log_check(part: str, text: str) -> Verdict:
    """Whether a log has no such line."""
    found = bad_lines(text)
    first = f"; the first: {found[0][:_MOST_SHOWN]}" if found else ""
    lines = len(text.splitlines())
    check = "the server's log has no error and no traceback"
    return Verdict(part, check, bool(lines) and not found, f"{len(found)} of {lines} lines{first}")
