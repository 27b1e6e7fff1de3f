"""Tables, page, JSON and picture of the host-time benchmark."""

import dataclasses
import json
from pathlib import Path

from tests.unit.tools.bench.host.cases import CELLS, NONE, OURS, results
from vllm_spec_plugin.tools.bench.host.parts import PARTS
from vllm_spec_plugin.tools.bench.host.picture import draw
from vllm_spec_plugin.tools.bench.host.report import NOTE, tables, to_json, to_markdown
from vllm_spec_plugin.tools.bench.provenance import provenance


def test_host_time_is_over_none_round_by_round_and_parts_are_by_arm() -> None:
    found = dict(tables(results()))
    title = "Host time per step by requests, ms: of none, and over it; target replaced by a constant"
    assert found[title] == [["arm", "1", "32"], [NONE, *["1.50 ±17%"] * 2], [OURS, *["+0.60 ±0.05"] * 2]]
    for clock, expected in (("CPU", ["11.50", "14.10"]), ("wall", ["23.00", "28.20"])):
        steps = found[f"Whole step by requests, {clock} time, ms; target computed"]
        assert [row[2].split()[0] for row in steps] == ["32", *expected]
    parts = found["CPU time per step by part, ms; 32 requests, target computed"]
    assert parts[0] == ["part", NONE, OURS]
    assert [row[0] for row in parts[1:-2]] == list(PARTS)
    assert ["sampler", "0.15", "0.21"] in parts
    assert ["forward", "10.00", "10.00"] in parts
    assert parts[-2:] == [["drafted per request", "0.0", "4.0"], ["output per request", "1.0", "4.0"]]
    assert len(found) == 3 * 2 + len(CELLS)


def test_one_round_has_no_spread() -> None:
    found = results()
    for key, summary in found.summaries.items():
        found.summaries[key] = dataclasses.replace(summary, wall={0: summary.wall[0]}, host={0: summary.host[0]})
    assert next(tables(found))[1][1:] == [[NONE, "1.00", "1.00"], [OURS, "+0.50", "+0.50"]]


def test_the_page_says_how_it_was_made_and_json_has_everything() -> None:
    origin = provenance(["bench", "host", "--levels", "1,32"], 0, ()) | {"rounds": 2}
    page = to_markdown(results(), origin, "host.png")
    assert page.startswith("# Host time of a step\n\n```\nvllm-spec bench host --levels 1,32\n```\n")
    assert "](host.png)" in page
    assert NOTE in page
    assert "Other processes used 0.25 cores" in page
    assert page.count("\n|---") == 3 * 2 + len(CELLS)
    found = json.loads(json.dumps(to_json(results(), origin)))
    assert found["provenance"]["arguments"][:2] == ["bench", "host"]
    assert len(found["cells"]) == 2 * len(CELLS)
    cell = found["cells"][-1]
    assert (cell["arm"], cell["is_computed"], cell["num_requests"]) == (OURS, True, 32)
    assert abs(cell["host_over_none"]["median"] - 0.0006) < 1e-9


def test_the_picture_shows_what_parts_take(tmp_path: Path) -> None:
    found = results()
    draw(found, "a title", tmp_path / "one.png")
    draw(found, "a title", tmp_path / "again.png")
    summary = found.summaries[OURS, (False, 32)]
    found.summaries[OURS, (False, 32)] = dataclasses.replace(
        summary, cpu_parts=summary.cpu_parts | {"views": {0: 0.01}}
    )
    draw(found, "a title", tmp_path / "other.png")
    one, again, other = ((tmp_path / f"{name}.png").read_bytes() for name in ("one", "again", "other"))
    assert one.startswith(b"\x89PNG")
    assert one == again != other
