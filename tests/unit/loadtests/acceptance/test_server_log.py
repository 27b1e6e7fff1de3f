"""What a log says."""

import pytest

from loadtests.acceptance.server_log import bad_lines, log_check

SOUND = """\
(APIServer pid=7) INFO 11-22 02:13:12 [launcher.py:12] Route: /health, Methods: GET
(Worker pid=9) WARNING 11-22 02:13:12 [guard.py:99] proposer fault (raised), ...: RuntimeError: on purpose
INFO:     127.0.0.1:4711 - "POST /v1/completions HTTP/1.1" 400 Bad Request
ERROR_RATE is 0
"""
ENDING = "(APIServer pid=7) INFO 11-22 04:07:37 [launcher.py:254] [shutdown] API server: shutdown triggered\n"
# In vLLM 0.32, with the plugin and without.
LAST_WORDS = """\
(APIServer pid=7) ERROR 11-22 04:07:37 [async_llm.py:906] AsyncLLM output_handler failed.
(APIServer pid=7) ERROR 11-22 04:07:37 [async_llm.py:906] Traceback (most recent call last):
(APIServer pid=7) ERROR 11-22 04:07:37 [async_llm.py:906]     raise self._format_exception(outputs) from None
(APIServer pid=7) ERROR 11-22 04:07:37 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore
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


def test_vllm_may_log_the_death_of_an_engine_that_it_was_told_to_end() -> None:
    assert bad_lines(SOUND + ENDING + LAST_WORDS) == []


def test_no_other_death_and_no_other_error_is_forgiven() -> None:
    assert len(bad_lines(SOUND + LAST_WORDS)) == 4
    assert len(bad_lines(SOUND + LAST_WORDS + ENDING)) == 4
    other = "(EngineCore pid=8) ERROR 11-22 04:07:37 [core.py:1512] EngineCore encountered a fatal error."
    assert bad_lines(f"{ENDING}{LAST_WORDS}{other}\n") == [other]
    without_death = LAST_WORDS.replace("EngineDeadError", "KeyError")
    assert len(bad_lines(ENDING + without_death)) == 4
