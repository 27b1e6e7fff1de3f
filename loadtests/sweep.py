"""`python -m loadtests.sweep`: the highest request rate at which a server keeps latency goals."""

import math
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from loadtests.locust_process import last_line, run_locust
from loadtests.options import without_credentials
from loadtests.report import milliseconds, number, time_text
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.cli.options import ReportFiles, grouped
from vllm_spec_tools.report import Report, Table, write
from vllm_spec_tools.report.provenance import model_name, provenance

WITH, WITHOUT = "with speculation", "without speculation"
# Requests of a trial, at least: the p95 of fewer means little. A trial may take `_LONGEST` times `--seconds` for them.
_LEAST_REQUESTS, _LONGEST = 40, 5
_STOP_SECONDS = 20.0
# Standard deviations by which a Poisson process may miss its rate before the clients are to blame.
_DEVIATIONS = 4.0
# The first rate may be halved this often.
_HALVINGS = 6
_HEADER = ("arm", "outcome", "requests/s", "requests", "TTFT p95", "TPOT p95", "acceptance length")


class SweepError(UserError):
    """A sweep cannot go on; str() says why."""


@dataclass(frozen=True)
class Trial:
    """One request rate for some time.

    Attributes:
        rate: requests per second, on average of the Poisson process; `requests` were sent.
        ttft: p95 of the time to first token, `tpot` of the time per output token, in seconds; None if unknown.
        acceptance_length: tokens per step with a draft; None without drafts.
        missed: goals that were missed, in words; empty if the trial passed.
        is_short: whether the clients did not reach the rate, so that the trial says nothing about the server.
    """

    rate: float
    requests: int
    ttft: float | None
    tpot: float | None
    acceptance_length: float | None
    missed: tuple[str, ...]
    is_short: bool = False


def judge(rate: float, seconds: float, report: Mapping[str, Any], goals: Mapping[str, float]) -> Trial:
    """Judges the report of one trial; one whose clients did not reach the rate is not passed.

    Args:
        goals: limits of the 95th percentiles of `ttft` and `tpot`, in seconds.
    """
    sent, expected, total = int(report["sent"]), rate * seconds, report["all"]
    is_short = sent < expected - _DEVIATIONS * math.sqrt(expected) - 1
    found: dict[str, Any] = {name: None if total[name] is None else total[name]["p95"] for name in goals}
    missed = [f"{name.upper()} p95 {time_text(time)}" for name, time in found.items() if (time or 0) > goals[name]]
    amounts = {"failed": total["requests"] - total["succeeded"], "not answered": report["given_up"]}
    missed += [f"{amount} requests {words}" for words, amount in amounts.items() if amount]
    if is_short:
        missed.append(f"the clients sent {sent} requests instead of {expected:.0f}")
    if not total["succeeded"] and not missed:
        missed = ["no request succeeded"]
    acceptance = (report["server"] or {}).get("acceptance_length")
    return Trial(rate, sent, found["ttft"], found["tpot"], acceptance, tuple(missed), is_short)


def highest_rates(
    arms: Iterable[str], attempt: Callable[[str, float], bool], first: float, most: float, precision: float
) -> dict[str, float | None]:
    """Searches the highest rate of each arm; the arms take turns, so that slow changes of the machine meet all alike.

    Args:
        first: rate to begin with; doubled while it passes, halved while it fails.
        precision: the result and the lowest failing rate differ by at most this share of the result.

    Returns:
        The highest rate that passed, by arm; None if even the lowest one failed.
    """
    searches = {arm: _bisection(first, most, precision) for arm in arms}
    rates = {arm: next(search) for arm, search in searches.items()}
    found: dict[str, float | None] = dict.fromkeys(searches)
    while rates:
        for arm, rate in list(rates.items()):
            try:
                rates[arm] = searches[arm].send(attempt(arm, rate))
            except StopIteration as end:
                found[arm] = end.value
                del rates[arm]
    return found


def _bisection(first: float, most: float, precision: float) -> Generator[float, bool, float | None]:
    """Yields rates on a logarithmic scale and is sent whether they pass; returns the highest one that does."""
    passes, fails = None, None
    rate = min(first, most)
    for _ in range(_HALVINGS + 1):
        if (yield rate):
            passes = rate
            break
        fails, rate = rate, rate / 2
    if passes is None:
        return None
    while fails is None and passes < most:
        rate = min(2 * passes, most)
        passes, fails = (rate, None) if (yield rate) else (passes, rate)
    while fails is not None and fails > passes * (1 + precision):
        rate = math.sqrt(passes * fails)
        passes, fails = (rate, fails) if (yield rate) else (passes, rate)
    return passes


def report_of(
    model: str,
    goals: Mapping[str, float],
    highest: Mapping[str, float | None],
    trials: Mapping[str, Sequence[Trial]],
    origin: Mapping[str, Any],
) -> Report:
    """Makes the report; the rates of arms whose clients fell short are bounds."""
    short = [arm for arm, found in trials.items() if any(trial.is_short for trial in found)]
    rates = {
        arm: f"{'at least ' if arm in short else ''}{number(rate)} requests/s" if rate else "no tested rate"
        for arm, rate in highest.items()
    }
    kept = ", ".join(f"{name.upper()} p95 ≤ {time_text(limit)}" for name, limit in goals.items())
    answer = f"{model_name(model)} keeps {kept} up to {' and '.join(f'{rate} {arm}' for arm, rate in rates.items())}"
    speculating, plain = highest.get(WITH), highest.get(WITHOUT)
    ratio = f": {number(speculating / plain)} times the rate" if speculating and plain else ""
    rows = []
    for arm, found in trials.items():
        for trial in sorted(found, key=lambda trial: trial.rate):
            outcome = "missed: " + ", ".join(trial.missed) if trial.missed else "passed"
            figures = [number(trial.rate), str(trial.requests), milliseconds(trial.ttft), milliseconds(trial.tpot)]
            rows.append([arm, outcome, *figures, number(trial.acceptance_length)])
    answers = {
        arm: {"highest_rate": rate, "trials": [asdict(one) | {"passed": not one.missed} for one in trials[arm]]}
        for arm, rate in highest.items()
    }
    return Report(
        "loadtest sweep",
        f"Highest request rate of {model_name(model)}",
        origin,
        conclusion=[f"{answer}{ratio}."],
        tables=[Table("Trials by rate; times in ms", list(_HEADER), rows, text_columns=2)],
        notes=["Requests arrive as a Poisson process. A trial passes if both goals are kept and all are answered."],
        problems=[f"{arm}: the clients did not reach the rate; give them more --processes or cores." for arm in short],
        data={"model": model, "goals": dict(goals), "arms": answers},
    )


@grouped
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
        int, typer.Option(min=1, help="Maximum output tokens of a request whose prompt sets none.")
    ] = 64,
    prompts: Annotated[str, typer.Option(help="JSONL file of prompts that replaces those of all scenarios.")] = "",
    *,
    files: ReportFiles,
) -> None:
    """Find the highest request rate that keeps latency goals, with and without speculation.

    Requests arrive as a Poisson process. The rate doubles until a goal is missed, then is bisected. A trial passes if
    TTFT and TPOT keep their p95 goals and every request is answered. The arms take turns. The API key comes from
    OPENAI_API_KEY.
    """
    goals, progress = {"ttft": ttft_p95, "tpot": tpot_p95}, Console(stderr=True)
    common = ["--max-tokens", str(max_tokens), "--prompts", prompts]
    common += ["--processes", str(processes)] if processes > 1 else []
    arms = {WITH: (host, "")}
    if baseline:
        arms[WITHOUT] = (baseline_host, "") if baseline_host else (host, '{"vllm_xargs": {"spec": "off"}}')
    trials: dict[str, list[Trial]] = {arm: [] for arm in arms}
    models: list[str] = []

    def attempt(arm: str, rate: float) -> bool:
        length = min(max(seconds, _LEAST_REQUESTS / rate), _LONGEST * seconds)
        url, body = arms[arm]
        status, found = run_locust(url, length, _STOP_SECONDS, path, [*common, "--rate", str(rate), "--body", body])
        if found is None:
            raise SweepError(f"Locust ended with {status} and no report: {last_line(path.with_suffix('.log'))}")
        models.append(found["model"])
        trial = judge(rate, round(length), found, goals)
        trials[arm].append(trial)
        outcome = ", ".join(trial.missed) or "passed"
        progress.print(f"{arm}, {number(rate)} requests/s: {outcome}", markup=False, highlight=False)
        return not trial.missed

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trial.json"
        highest = highest_rates(arms, attempt, first, most, precision)
    arguments = [without_credentials(one) if "://" in one else one for one in sys.argv[1:]]
    origin = provenance(arguments, 0, (), {"model": models[0]}, "python -m loadtests.sweep", ("locust",))
    write(report_of(models[0], goals, highest, trials, origin), terminal=Console(), **vars(files))


if __name__ == "__main__":
    try:
        typer.run(main)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1 if isinstance(error, SweepError) else 2)
