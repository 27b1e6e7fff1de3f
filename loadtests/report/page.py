"""Writes a load test as one self-contained HTML page."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from loadtests.report.conclusion import conclusion
from loadtests.report.numbers import duration
from loadtests.report.plots import distributions, over_time
from loadtests.report.result import Result
from loadtests.report.tables import by_scenario, counted, failures, key_figures


def page(result: Result) -> str:
    """The HTML of the page; names and messages are escaped."""
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
        workers=result.workers,
        conclusion=conclusion(result),
        key_figures=key_figures(result),
        by_scenario=by_scenario(result),
        failures=failures(result),
        counted=counted(result),
        over_time=over_time(result),
        distributions=distributions(result),
    )


def _options(result: Result) -> list[tuple[str, Any]]:
    """Options by their names on the command line, without empty ones."""
    given = ((key.replace("_", "-"), value) for key, value in result.options.items())
    return [(name, value) for name, value in given if value not in (None, "")]
