import zipfile
from pathlib import Path

import pytest

from tests.seams.listing import Changes, compare, pins_of, report
from tests.seams.sources import Sources, folder_reader, wheel_reader
from tests.unit.seams.fake import ENGINE, library, sources

NAMES = (
    "lib.engine:Engine",
    "lib.engine:Engine.step",
    "lib.engine:Engine.is_idle",
    "lib.engine:Engine.batch",
    "lib.engine:Message.__init__",
    "lib.engine:Batch.size",
    "lib.engine:LIMIT",
    "lib.engine:make",
)


def changes(tmp_path: Path, old: str, new: str) -> Changes:
    """What the list of `NAMES` says when `old` becomes `new` in the library's source."""
    listed = pins_of(sources(library(tmp_path / "before")), NAMES)
    assert ENGINE.count(old) == 1
    now = pins_of(sources(library(tmp_path / "after", ENGINE.replace(old, new))), NAMES)
    return compare({key: pin for key, pin in listed.items() if pin is not None}, now, NAMES)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# Doubles.", "# Multiplies by two."),
        ('"""Makes a step."""', '"""Does another thing, it says."""'),
        ("x: int, *", "x: float, *"),
        ("return not self.waiting", "return (not\n                self.waiting)"),
        ("def _private(self) -> None: ...", "def _private(self, more) -> int: ..."),
    ],
)
def test_comments_docstrings_annotations_layout_and_other_names_do_not_count(
    tmp_path: Path, old: str, new: str
) -> None:
    assert not changes(tmp_path, old, new)


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("[2 * x]", "[3 * x]", "Engine.step"),
        ("return not self.waiting", "return True", "Engine.is_idle"),
        ("self.batch = Batch(size)", "self.batch = Batch(2 * size)", "Engine.batch"),
        ("int = 3", "int = 4", "LIMIT"),
    ],
)
def test_a_changed_body_is_told(tmp_path: Path, old: str, new: str, name: str) -> None:
    assert changes(tmp_path, old, new) == Changes(body=[f"lib.engine:{name}"])


@pytest.mark.parametrize(
    ("old", "new", "name", "shown"),
    [
        ("x: int, *, fast=True", "x: int, y=0, *, fast=True", "Engine.step", "+ y=0"),
        ("fast=True", "fast=False", "Engine.step", "- fast=True"),
        ("self, x: int, *, fast=True", "self, x: int, fast=True", "Engine.step", "- *"),
        ("@property", "@staticmethod", "Engine.is_idle", "- @property"),
        ("is_last: bool = False", "is_last: bool = True", "Message.__init__", "+ is_last=True"),
        ("LIMIT: int", "LIMIT: float", "LIMIT", "+ float"),
        ("Engine(Base)", "Engine", "Engine", "- Base"),
    ],
)
def test_a_changed_signature_is_told_and_shown(tmp_path: Path, old: str, new: str, name: str, shown: str) -> None:
    found = changes(tmp_path, old, new)
    assert list(found.signature) == [f"lib.engine:{name}"]
    assert f"      {shown}" in report(found, {}).splitlines()


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("def is_idle", "def is_empty", "Engine.is_idle"),
        ("self.batch =", "self.rows =", "Engine.batch"),
        ("def make", "def build", "make"),
    ],
)
def test_a_name_that_is_no_more_is_told(tmp_path: Path, old: str, new: str, name: str) -> None:
    assert changes(tmp_path, old, new).gone == [f"lib.engine:{name}"]


def test_a_method_that_moved_to_a_base_class_has_not_changed(tmp_path: Path) -> None:
    moved, base = "lib.engine:Engine.shared", "lib.base:Base.shared"
    pins = pins_of(sources(library(tmp_path)), [moved, base])
    assert pins[moved] == pins[base] is not None


def test_a_wheel_is_read_without_unpacking(tmp_path: Path) -> None:
    top = library(tmp_path)
    with zipfile.ZipFile(tmp_path / "lib.whl", "w") as wheel:
        for path in (top / "lib").iterdir():
            wheel.write(path, f"lib/{path.name}")
    unpacked = pins_of(Sources(folder_reader(top, "lib")), NAMES)
    assert pins_of(Sources(wheel_reader(tmp_path / "lib.whl")), NAMES) == unpacked
