"""Writes what a load test found to where it is wanted."""

import json
from argparse import Namespace
from pathlib import Path

from loadtests.report.figures import figures
from loadtests.report.result import Result


def check_files(options: Namespace) -> None:
    """Checks before the test that its reports have somewhere to go.

    Raises:
        ValueError: one of them has no folder.
    """
    for name, given in (("--report", options.report), ("--report-html", options.report_html)):
        if given and not Path(given).parent.is_dir():
            raise ValueError(f"{name} {given}: there is no folder {Path(given).parent}")


def write(result: Result, options: Namespace) -> None:
    """Writes the reports that are wanted."""
    if options.report:
        text = json.dumps(figures(result), indent=1) + "\n"
        Path(options.report).write_text(text, encoding="utf-8")
    if options.report_html:
        # matplotlib takes a while.
        from loadtests.report.page import page

        Path(options.report_html).write_text(page(result), encoding="utf-8")
