"""Reports go where they are wanted."""

import json
from argparse import Namespace
from pathlib import Path

import pytest

from loadtests.writing import check_files, write
from tests.unit.loadtests.report.results import result


def test_reports_are_written_where_they_are_wanted(tmp_path: Path) -> None:
    figures, page = tmp_path / "figures.json", tmp_path / "page.html"
    write(result({}), Namespace(report=str(figures), report_html=""))
    assert json.loads(figures.read_text())["all"]["requests"] == 0
    assert not page.exists()
    figures.unlink()
    write(result({}), Namespace(report="", report_html=str(page)))
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert not figures.exists()


def test_a_report_needs_a_folder(tmp_path: Path) -> None:
    check_files(Namespace(report=str(tmp_path / "figures.json"), report_html=""))
    missing = tmp_path / "missing"
    with pytest.raises(ValueError, match=rf"--report-html {missing}/page.html: there is no folder {missing}"):
        check_files(Namespace(report="figures.json", report_html=str(missing / "page.html")))
