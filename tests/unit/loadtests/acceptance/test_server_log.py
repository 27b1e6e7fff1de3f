"""What a log says."""

import pytest

from loadtests.acceptance.server_log import bad_lines, log_check

SOUND = """\
(APIServer pid=7) INFO 11-22 02:13:12 [launcher.py:12] Route: /health, Methods: GET
(Worker pid=9) WARNING 11-22 02:13:12 [guard.py:99] proposer fault (raised), ...: RuntimeError: on purpose
INFO:     127.0.0.1:4711 - "POST /v1/completions HTTP/1.1" 400 Bad Request
ERROR_RATE is 0
"""


@pytest.mark.parametrize(
    "line",
    [
        "(EngineCore pid=8) ERROR 11-22 02:13:12 [core.py:1512] EngineCore encountered a fatal error.",
        "ERROR 11-22 02:13:12 [async_llm.py:906] AsyncLLM output_handler failed.",
        "ERROR:    Exception in ASGI application",
        "(Worker pid=9) CRITICAL 11-22 02:13:12 [x.py:1] out of everything",
        "Traceback (most recent call last):",
        "(Worker pid=9) Traceback (most recent call last):",
    ],
)
def test_errors_and_tracebacks_are_found(line: str) -> None:
    text = f"{SOUND}{line}\n{SOUND}"
    assert bad_lines(text) == [line]
    verdict = log_check("server", text)
    assert not verdict.passed
    assert line[:40] in verdict.figures


def test_warnings_and_refusals_are_none() -> None:
    assert bad_lines(SOUND) == []
    assert log_check("server", SOUND).passed


def test_a_log_that_is_empty_shows_nothing() -> None:
    assert not log_check("server", "").passed
