"""The picture is drawn; how it looks is for eyes."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.tools.bench.load.cases import RATES, results
from vllm_spec_plugin.tools.bench.load.picture import draw
from vllm_spec_plugin.tools.bench.load.workloads import EASY


def size_of(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


@pytest.mark.parametrize("switching", [True, False])
def test_a_png_has_two_panels_per_workload_and_one_per_switch(tmp_path: Path, switching: bool) -> None:
    path = tmp_path / "load.png"
    draw(results(switching=switching), "a title", path)
    width, height = size_of(path)
    assert (width > 2 * height) != switching


def test_what_an_arm_did_shows(tmp_path: Path) -> None:
    found = results(switching=False)
    draw(found, "a title", tmp_path / "one.png")
    draw(found, "a title", tmp_path / "again.png")
    draw(results(RATES | {"optimal": (70.0, 109.0)}, switching=False), "a title", tmp_path / "other.png")
    for arm in found.arms:
        found.summaries[arm, EASY, 8] = replace(found.summaries[arm, EASY, 8], tpot={})
    draw(found, "a title", tmp_path / "without some times.png")
    pictures = {
        name: (tmp_path / f"{name}.png").read_bytes() for name in ("one", "again", "other", "without some times")
    }
    assert pictures.pop("again") == pictures["one"]
    assert len(set(pictures.values())) == 3
