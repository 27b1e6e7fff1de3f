"""`python -m loadtests.sweep`: the highest request rate at which a server keeps latency goals."""

import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from loadtests.locust_process import last_line, run_locust
from loadtests.options import without_credentials
from loadtests.report.numbers import number, time_text

SCHEMA = 1
WITH, WITHOUT = "with speculation", "without speculation"
# Requests of a trial, at least: the p95 of fewer means little.
_LEAST_REQUESTS = 40
# A trial may take this many times `--seconds` to reach them.
_LONGEST = 5
_STOP_SECONDS = 20.0
# Standard deviations by which a Poisson process may miss its rate before the clients are to blame.
_DEVIATIONS = 4.0
# The first rate may be halved this often.
_HALVINGS = 6


class SweepError(RuntimeError):
    """A sweep cannot go on; str() says why."""


@dataclass(frozen=True)
class Goals:
    """Limits of the 95th percentiles, in seconds."""

    ttft: float
    tpot: float

    def __str__(self) -> str:
        return f"TTFT p95 ≤ {time_text(self.ttft)}, TPOT p95 ≤ {time_text(self.tpot)}"


@dataclass(frozen=True)
class Trial:
    """One request rate for some time.

    Attributes:
        rate: requests per second that were sent, on average of the Poisson process.
        requests: number of requests that were sent.
        ttft: p95 of the time to first token, in seconds; None if unknown.
        tpot: p95 of the time per output token, in seconds; None if unknown.
        acceptance_length: tokens per step with a draft; None without drafts.
        missed: goals that were missed, in words; empty if the trial passed.
    """

    rate: float
    requests: int
    ttft: float | None
    tpot: float | None
    acceptance_length: float | None
    missed: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether all goals were kept."""
        return not self.missed


def judge(rate: float, seconds: float, report: Mapping[str, Any], goals: Goals) -> Trial:
    """Judges the report of one trial.

    Raises:
        SweepError: the clients did not reach the rate, so the trial says nothing about the server.
    """
    sent, expected = int(report["sent"]), rate * seconds
    if sent < expected - _DEVIATIONS * math.sqrt(expected) - 1:
        raise SweepError(f"the clients sent {sent} requests in the place of {expected:.0f}: give them more --processes")
    total, server = report["all"], report["server"] or {}
    ttft, tpot = (None if total[name] is None else total[name]["p95"] for name in ("ttft", "tpot"))
    failed = total["requests"] - total["succeeded"]
    missed = [
        f"{name} p95 {time_text(found)}"
        for name, found, limit in (("TTFT", ttft, goals.ttft), ("TPOT", tpot, goals.tpot))
        if found is not None and found > limit
    ]
    missed += [
        f"{amount} requests {words}"
        for amount, words in ((failed, "failed"), (report["given_up"], "not answered"))
        if amount
    ]
    if not total["succeeded"] and not missed:
        missed = ["no request succeeded"]
    return Trial(rate, sent, ttft, tpot, server.get("acceptance_length"), tuple(missed))


def highest_rate(attempt: Callable[[float], bool], first: float, most: float, precision: float) -> float | None:
    """Bisects, on a logarithmic scale, for the highest rate that passes.

    Args:
        attempt: whether a rate passes.
        first: rate to begin with; doubled while it passes, halved while it fails.
        most: highest rate to try.
        precision: the result and the lowest failing rate differ by at most this share of the result.

    Returns:
        The highest rate that passed; None if even the lowest one failed.
    """
    passes, fails = None, None
    rate = min(first, most)
    for _ in range(_HALVINGS + 1):
        if attempt(rate):
            passes = rate
            break
        fails, rate = rate, rate / 2
    if passes is None:
        return None
    while fails is None and passes < most:
        rate = min(2 * passes, most)
        passes, fails = (rate, None) if attempt(rate) else (passes, rate)
    while fails is not None and fails > passes * (1 + precision):
        rate = math.sqrt(passes * fails)
        passes, fails = (rate, fails) if attempt(rate) else (passes, rate)
    return passes


def conclusion(model: str, goals: Goals, highest: Mapping[str, float | None]) -> str:
    """The answer in one sentence."""
    found = {arm: f"{number(rate)} requests/s" if rate else "no tested rate" for arm, rate in highest.items()}
    speculating, plain = highest.get(WITH), highest.get(WITHOUT)
    answer = f"{model} keeps {goals} up to {found[WITH]} with speculation"
    if WITHOUT not in highest:
        return f"{answer}."
    ratio = f": {number(speculating / plain)} times the rate" if speculating and plain else ""
    return f"{answer} and {found[WITHOUT]} without{ratio}."


def main(
    ttft_p95: Annotated[float, typer.Option(min=0.001, help="Goal: p95 of the time to first token, in seconds.")],
    tpot_p95: Annotated[float, typer.Option(min=0.0001, help="Goal: p95 of the time per output token, in seconds.")],
    host: Annotated[str, typer.Option(help="URL of the server.")] = "http://localhost:8000",
    baseline_host: Annotated[
        str, typer.Option(help="Server without speculation. Default: --host, with `spec: off` in each request.")
    ] = "",
    baseline: Annotated[bool, typer.Option(help="Also sweep without speculation.")] = True,
    first: Annotated[float, typer.Option(min=0.01, help="Requests per second to begin with.")] = 1.0,
    most: Annotated[float, typer.Option(min=0.01, help="Highest requests per second to try.")] = 1000.0,
    precision: Annotated[float, typer.Option(min=0.01, max=1, help="Relative precision of the answer.")] = 0.1,
    seconds: Annotated[
        float, typer.Option(min=1, help="Length of a trial; low rates take up to 5 times as long.")
    ] = 20.0,
    processes: Annotated[int, typer.Option(min=1, help="Locust's worker processes.")] = 1,
    max_tokens: Annotated[
        int, typer.Option(min=1, help="Most output tokens of a request whose prompt sets none.")
    ] = 64,
    prompts: Annotated[str, typer.Option(help="JSONL file of prompts that replaces those of all scenarios.")] = "",
    report: Annotated[Path | None, typer.Option(help="JSON file for the answer and all trials.")] = None,
) -> None:
    """Find the highest request rate that keeps latency goals, with and without speculation.

    Requests arrive as a Poisson process. The rate doubles until a goal is missed, then is bisected. A trial passes if
    TTFT and TPOT keep their p95 goals and every request is answered. The API key comes from OPENAI_API_KEY.
    """
    goals, console = Goals(ttft_p95, tpot_p95), Console()
    progress = Console(stderr=True)
    common = ["--max-tokens", str(max_tokens), "--prompts", prompts]
    if processes > 1:
        common += ["--processes", str(processes)]
    arms = {WITH: (host, "")}
    if baseline:
        arms[WITHOUT] = (baseline_host, "") if baseline_host else (host, '{"vllm_xargs": {"spec": "off"}}')
    trials: dict[str, list[Trial]] = {arm: [] for arm in arms}
    highest: dict[str, float | None] = {}
    model = ""
    with tempfile.TemporaryDirectory() as folder:

        def attempt(arm: str, rate: float) -> bool:
            nonlocal model
            length = min(max(seconds, _LEAST_REQUESTS / rate), _LONGEST * seconds)
            url, body = arms[arm]
            found = _run(Path(folder) / "trial.json", url, length, [*common, "--rate", str(rate), "--body", body])
            model = found["model"]
            trial = judge(rate, round(length), found, goals)
            trials[arm].append(trial)
            outcome = "passed" if trial.passed else ", ".join(trial.missed)
            progress.print(f"{arm}, {number(rate)} requests/s: {outcome}", markup=False, highlight=False)
            return trial.passed

        try:
            for arm in arms:
                highest[arm] = highest_rate(lambda rate, arm=arm: attempt(arm, rate), first, most, precision)  # type: ignore[misc]
        except SweepError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from None
    answer = conclusion(model, goals, highest)
    console.print(answer, markup=False, highlight=False, soft_wrap=True)
    console.print(_table(trials))
    if report is not None:
        body = {
            "schema": SCHEMA,
            "conclusion": answer,
            "model": model,
            "goals": asdict(goals),
            "precision": precision,
            "arms": {
                arm: {
                    "host": without_credentials(arms[arm][0]),
                    "highest_rate": rate,
                    "trials": [asdict(trial) | {"passed": trial.passed} for trial in trials[arm]],
                }
                for arm, rate in highest.items()
            },
        }
        report.write_text(json.dumps(body, indent=1) + "\n")


def _run(report: Path, host: str, seconds: float, options: Sequence[str]) -> dict[str, Any]:
    """The report of one trial."""
    status = run_locust(host, seconds, _STOP_SECONDS, report, options)
    try:
        found: dict[str, Any] = json.loads(report.read_text())
    except (OSError, ValueError):
        raise SweepError(f"Locust ended with {status} and no report: {last_line(report.with_suffix('.log'))}") from None
    return found


def _table(trials: Mapping[str, Sequence[Trial]]) -> Table:
    table = Table(title="trials by rate")
    for header in ("", "requests/s", "requests", "TTFT p95", "TPOT p95", "acceptance length", "outcome"):
        table.add_column(header)
    for arm, found in trials.items():
        for trial in sorted(found, key=lambda trial: trial.rate):
            latencies = time_text(trial.ttft), time_text(trial.tpot), number(trial.acceptance_length)
            outcome = "passed" if trial.passed else "missed: " + ", ".join(trial.missed)
            table.add_row(arm, number(trial.rate), str(trial.requests), *latencies, outcome)
    return table


if __name__ == "__main__":
    typer.run(main)
