"""`vllm-spec demo`: completes the same prompts without and with speculation, and compares."""

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import httpx
import typer
from openai import DefaultHttpxClient, OpenAI, OpenAIError
from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table

from vllm_spec_plugin.cli.console import new_console
from vllm_spec_plugin.cli.errors import fail
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_plugin.tools.demo import model_path
from vllm_spec_plugin.tools.progress import Tasks
from vllm_spec_plugin.tools.serving import Server

# Code like the bundled target's training data; the later prompts are repetitive, as much code is.
PROMPTS = (
    'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n',
    "class Stack:\n    def __init__(self):\n        self._items = []\n\n    def push(self, item):\n",
    "import os\nimport sys\n\ndef read_lines(path):\n    with open(path) as file:\n",
    'def parse_args(argv):\n    parser = argparse.ArgumentParser()\n    parser.add_argument("--verbose",',
    "    def visit_Add(self, node):\n        self.generic_visit(node)\n\n"
    "    def visit_Sub(self, node):\n        self.generic_visit(node)\n\n    def visit_Mult(self, node):\n",
    'ERRORS = {\n    400: "Bad Request",\n    401: "Unauthorized",\n    403: "Forbidden",\n    404: "Not Found",\n',
    "    def __lt__(self, other):\n        return self.value < other.value\n\n"
    "    def __le__(self, other):\n        return self.value <= other.value\n\n    def __gt__(self, other):\n",
    "    self.assertEqual(add(1, 2), 3)\n    self.assertEqual(add(2, 2), 4)\n    self.assertEqual(add(3, 2), 5)\n",
)
_DRAFTS = "vllm:spec_decode_num_drafts_total"
_DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
_ACCEPTED_TOKENS = "vllm:spec_decode_num_accepted_tokens_total"
# vLLM updates its counters just after it has sent a step's tokens.
_SETTLE_SECONDS = 0.2
_REPEATS = 3


@dataclass(frozen=True)
class Speculation:
    """Drafts, draft tokens and accepted tokens of a span of time."""

    drafts: float = 0.0
    draft_tokens: float = 0.0
    accepted_tokens: float = 0.0

    @classmethod
    def between(cls, before: Mapping[str, float], after: Mapping[str, float]) -> "Speculation":
        """The difference of two readings of vLLM's counters, which do not exist before the first draft."""
        return cls(
            *(after.get(name, 0.0) - before.get(name, 0.0) for name in (_DRAFTS, _DRAFT_TOKENS, _ACCEPTED_TOKENS))
        )

    def __add__(self, other: "Speculation") -> "Speculation":
        return Speculation(
            self.drafts + other.drafts,
            self.draft_tokens + other.draft_tokens,
            self.accepted_tokens + other.accepted_tokens,
        )

    @property
    def acceptance_length(self) -> float | None:
        """1 + accepted/steps; None if nothing was drafted."""
        return 1 + self.accepted_tokens / self.drafts if self.drafts else None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted/drafted; None if nothing was drafted."""
        return self.accepted_tokens / self.draft_tokens if self.draft_tokens else None


@dataclass(frozen=True)
class Completion:
    """One response: text, output tokens, median seconds, and its drafts."""

    text: str
    tokens: int
    seconds: float
    speculation: Speculation


def complete_all(server: Server, max_tokens: int, console: Console) -> list[Completion]:
    """Completes the demo's prompts one at a time, greedily, each several times; times are medians.

    Raises:
        OpenAIError: a request failed.
    """
    # No retry: a repeated request would be timed twice. No proxy: the server is local.
    with (
        OpenAI(
            base_url=f"{server.base_url}/v1",
            api_key="not needed",
            max_retries=0,
            http_client=DefaultHttpxClient(trust_env=False, timeout=600.0),
        ) as client,
        Tasks(console) as tasks,
        tasks.task("completing", len(PROMPTS)) as advance,
    ):
        # Warm-up: the first request includes lazy initialisation.
        client.completions.create(model=server.model, prompt="import ", max_tokens=max_tokens, temperature=0)
        completions: list[Completion] = []
        for prompt in PROMPTS:
            time.sleep(_SETTLE_SECONDS)
            before = server.metrics()
            times = []
            for _ in range(_REPEATS):
                start = time.perf_counter()
                answer = client.completions.create(
                    model=server.model, prompt=prompt, max_tokens=max_tokens, temperature=0
                )
                times.append(time.perf_counter() - start)
            seconds = statistics.median(times)
            time.sleep(_SETTLE_SECONDS)
            tokens = answer.usage.completion_tokens if answer.usage else 0
            speculation = Speculation.between(before, server.metrics())

            completions.append(Completion(answer.choices[0].text, tokens, seconds, speculation))
            advance(len(completions))
        return completions


def comparison_table(without: list[Completion], with_plugin: list[Completion]) -> Table:
    """Builds a table with a row per prompt and a row of totals."""
    table = Table(title="tokens per second, one request at a time, temperature 0", show_footer=True)
    rows = [
        (_first_line(prompt), old.tokens, old.seconds, new.tokens, new.seconds, new.speculation, old.text == new.text)
        for prompt, old, new in zip(PROMPTS, without, with_plugin, strict=True)
    ]
    cells = [_cells(*row) for row in rows]
    total = _cells(
        "all",
        sum(row[1] for row in rows),
        sum(row[2] for row in rows),
        sum(row[3] for row in rows),
        sum(row[4] for row in rows),
        sum((row[5] for row in rows), Speculation()),
        all(row[6] for row in rows),
    )
    headers = ("prompt", "without", "with", "speedup", "acceptance length", "acceptance rate", "identical")
    for header, footer in zip(headers, total, strict=True):
        table.add_column(header, footer, justify="left" if header == "prompt" else "right")
    for row in cells:
        table.add_row(*row)
    return table


def _cells(
    name: str,
    old_tokens: int,
    old_seconds: float,
    new_tokens: int,
    new_seconds: float,
    speculation: Speculation,
    identical: bool,
) -> tuple[str, ...]:
    old, new = old_tokens / old_seconds, new_tokens / new_seconds
    speedup = f"{new / old:.2f}x" if old else "-"
    length, rate = speculation.acceptance_length, speculation.acceptance_rate
    return (
        escape(name),
        f"{old:.1f}",
        f"{new:.1f}",
        speedup,
        "-" if length is None else f"{length:.2f}",
        "-" if rate is None else f"{rate:.2f}",
        "yes" if identical else "[red]NO[/red]",
    )


def _first_line(prompt: str) -> str:
    return prompt.strip().splitlines()[0]


def demo(
    config: Annotated[Path, typer.Option(help="The plugin.yaml of the second server.")] = Path("configs/ngram.yaml"),
    max_tokens: Annotated[int, typer.Option(min=1, help="Maximum output tokens per prompt.")] = 128,
    model: Annotated[
        str | None, typer.Option(help="Folder or hub name of another target. [default: the bundled one]")
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to wait for a server to start.")] = 300.0,
) -> None:
    """Serve a model without and with speculation, complete the same prompts, and compare speed and outputs."""
    console = new_console()
    if not config.is_file():
        raise UserError(
            f"--config {config}: no such file in {Path.cwd()}; allowed: a plugin.yaml; the default is found in the "
            "project's folder"
        )

    target = model or str(model_path("target"))
    console.print(f"Target: {escape(target)}")
    console.print(
        f"{len(PROMPTS)} prompts, up to {max_tokens} tokens each, on two servers one after the other; "
        f"medians of {_REPEATS}.\n"
    )
    runs: list[list[Completion]] = []
    try:
        for setting in (None, config.resolve()):
            title = f"with {config}" if setting else "without speculation"
            console.print(f"[bold]{len(runs) + 1}/2[/bold] {escape(title)}")
            with Server(target, setting, timeout=timeout, console=console) as server:
                runs.append(complete_all(server, max_tokens, console))
    except (OpenAIError, httpx.HTTPError) as error:
        raise UserError(f"the server did not answer: {error}") from None

    without, with_plugin = runs
    console.print()
    console.print(comparison_table(without, with_plugin))
    console.print("\nFirst output, with speculation:\n")
    console.print(Syntax(PROMPTS[0] + with_plugin[0].text, "python", word_wrap=True, background_color="default"))
    differing = [
        (_first_line(prompt), old.text, new.text)
        for prompt, old, new in zip(PROMPTS, without, with_plugin, strict=True)
        if old.text != new.text
    ]
    if differing:
        prompt, old_text, new_text = differing[0]
        fail(
            f"{len(differing)} of {len(PROMPTS)} outputs differ. The first:\n"
            f"  prompt:  {prompt!r}\n"
            f"  without: {old_text!r}\n"
            f"  with:    {new_text!r}",
            1,
        )
