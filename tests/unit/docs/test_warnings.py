"""The lines that docs/troubleshooting.md explains are lines of the installed vLLM."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HEADING = "## vLLM's warnings at start-up"


def rows(page: str) -> list[list[str]]:
    """Returns the quoted parts of each row's first column; alternatives of other vLLM versions are parts, too."""
    section = page.partition(HEADING)[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")]
    quoted = [re.findall("`([^`]+)`", cell) for cell in cells]
    return [[part for text in texts for part in text.split(" ... ")] for texts in quoted if texts]


@pytest.fixture(scope="module")
def source() -> str:
    """The text of vLLM's modules, with strings that span lines in one."""
    spec = find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    modules = (path.read_text() for path in sorted(Path(spec.origin).parent.rglob("*.py")))
    return re.sub(r'"\s*\n\s*f?"', "", "\n".join(modules))


def test_each_line_is_one_of_vllms(source: str) -> None:
    found = rows((ROOT / "docs" / "troubleshooting.md").read_text())
    assert len(found) >= 8
    assert not [parts for parts in found if not any(part in source for part in parts)]
