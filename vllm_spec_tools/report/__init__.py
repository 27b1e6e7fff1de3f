"""Reports of the tools: measurements, tables and charts, in a terminal and as Markdown, JSON, CSV, PNG and HTML."""

from vllm_spec_tools.report.chart import Chart, Line
from vllm_spec_tools.report.measurements import (
    PERCENTILES,
    Measurements,
    Ratio,
    Spread,
    percentiles,
    ratio,
    show_percentiles,
    show_spread,
)
from vllm_spec_tools.report.output import Files, Pages, Report, check_files, write
from vllm_spec_tools.report.table import Table, matrix, plural

__all__ = [
    "PERCENTILES",
    "Chart",
    "Files",
    "Line",
    "Measurements",
    "Pages",
    "Ratio",
    "Report",
    "Spread",
    "Table",
    "check_files",
    "matrix",
    "percentiles",
    "plural",
    "ratio",
    "show_percentiles",
    "show_spread",
    "write",
]
