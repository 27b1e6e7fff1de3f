"""Both answers are shown side by side at the measured pace."""

import io

from rich.console import Console

from tests.unit.tools.demo.cases import WORDS, pairs
from vllm_spec_tools.demo.view import View, frame

PROMPTS = ["def a():\n", "def b():\n"]


def drawn(elapsed: float) -> str:
    console = Console(width=100, file=io.StringIO(), force_terminal=False)
    with console.capture() as capture:
        console.print(frame(pairs()[:1], PROMPTS, 6, elapsed))
    return capture.get()


def test_answers_grow_at_their_pace() -> None:
    # 40 tokens in 2 seconds without, in 1 second with speculation.
    half = drawn(0.5)
    assert "10 tokens, 0.5 s, 20 tokens/s" in half
    assert "20 tokens, 0.5 s, 40 tokens/s" in half
    assert "done" not in half
    later = drawn(1.0)
    assert "20 tokens, 1.0 s, 20 tokens/s" in later
    assert "done: 40 tokens, 1.0 s, 40 tokens/s" in later
    end = drawn(9.0)
    assert "done: 40 tokens, 2.0 s, 20 tokens/s" in end
    assert "pair 1 of 6; so far 2.00 times as fast" in end


def test_without_a_terminal_each_pair_is_a_line() -> None:
    out = io.StringIO()
    with View(Console(file=out, width=200), PROMPTS, 6) as view:
        for pair in pairs((0.0, 0.8)):
            view.show(pair)
    assert out.getvalue().splitlines() == [
        "pair 1 of 6: 20 -> 40 tokens/s, 2.00 times, identical: def a():",
        "pair 2 of 6: 20 -> 44 tokens/s, 2.20 times, identical, other processes used 0.8 cores: def b():",
    ]


def test_in_a_terminal_the_last_pair_is_written_to_its_end() -> None:
    out = io.StringIO()
    console = Console(file=out, width=200, force_terminal=True)
    now = 0.0
    with View(console, PROMPTS, 1, clock=lambda: now) as view:
        view.show(pairs()[0])
        assert WORDS[-1].strip() not in out.getvalue()
        # Past the end of the last pair: nothing is waited for.
        now = 10.0
    assert WORDS[-1].strip() in out.getvalue()
