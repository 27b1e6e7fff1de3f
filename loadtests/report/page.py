"""A load test as a page: one HTML file that needs nothing else."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from loadtests.report.key_figures import key_figures
from loadtests.report.numbers import count, duration
from loadtests.report.plots.choice import distributions, over_time
from loadtests.report.result import Result
from loadtests.report.tables import by_scenario, counted, failures


def page(result: Result) -> str:
    """The page's text. Names and messages in it are escaped, whatever they are."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.jinja").render(
        model=result.model,
        host=result.host,
        began=f"{result.began:%Y-%m-%d %H:%M:%S %Z}",
        duration=duration(result.seconds),
        options=_options(result),
        verdict=_verdict(result),
        key_figures=key_figures(result),
        by_scenario=by_scenario(result),
        failures=failures(result),
        counted=counted(result),
        over_time=over_time(result),
        distributions=distributions(result),
    )


def _options(result: Result) -> list[tuple[str, Any]]:
    """As they are named on the command line; those that say nothing are left out."""
    given = ((key.replace("_", "-"), value) for key, value in result.options.items())
    return [(name, value) for name, value in given if value not in (None, "")]


def _verdict(result: Result) -> str:
    """What a page without latencies says instead; empty for others."""
    total = result.total
    if not total.requests:
        return "No request came to its end, so there is nothing to tell."
    if not total.succeeded:
        return f"All {count(total.requests)} requests failed."
    return ""
