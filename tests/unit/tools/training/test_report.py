"""What is printed and drawn."""

import io

from rich.console import Console

from vllm_spec_plugin.tools.report import write
from vllm_spec_plugin.tools.report.provenance import provenance
from vllm_spec_plugin.tools.training.report import Measurement, report_of

ORIGIN = provenance([], 0, (), {"target": "m"})


def test_the_table_has_a_line_per_head_below_the_targets_own() -> None:
    file = io.StringIO()
    measured = Measurement("own text", 1234, [1.0] * 5, [[0.5, 0.6, 0.7, 0.8, 0.9], [0.25] * 5], [1.5, 2.5], 2.25)
    report = report_of("train-medusa", "2 Medusa heads for m", [measured], None, ORIGIN)
    write(report, terminal=Console(file=file, width=120))
    text = file.getvalue()
    assert "own text: 2.25 tokens per target pass with a chain of all heads." in text
    assert "Held out, own text: 1,234 positions" in text
    lines = [line.split() for line in text.splitlines()]
    assert ["top-1", "top-2", "top-3", "top-4", "top-5", "loss"] in lines
    assert ["target,", "token", "t+1", *["100.0%"] * 5] in lines
    assert ["head", "1,", "token", "t+2", "50.0%", "60.0%", "70.0%", "80.0%", "90.0%", "1.500"] in lines
    values = {(row.arm, row.metric): row.value for row in report.measurements.rows()}
    assert (values["head 1, token t+2", "top_2"], values["head 2, token t+3", "loss"]) == (0.6, 2.5)
