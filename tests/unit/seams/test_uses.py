import textwrap
from pathlib import Path

import pytest

from tests.seams.uses import Uses, modules_in
from tests.unit.seams.fake import library, sources, write

CONVENTIONS = {"engine": ("lib.engine:Engine",)}


def found(tmp_path: Path, code: str, init: str = "") -> set[str]:
    """Names of the library that a module of this code uses; those of `lib.engine` without their module."""
    write(library(tmp_path, init=init), {"plugin/held/code.py": code, "plugin/other.py": "x = 1"})
    uses = Uses(sources(tmp_path), "lib", CONVENTIONS, ["plugin.held"])
    for module in modules_in(tmp_path, "plugin"):
        uses.scan(module)
    assert {module for modules in uses.found.values() for module in modules} <= {"plugin.held.code"}
    return {key.removeprefix("lib.engine:") for key in uses.found}


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("from lib.engine import make", {"make"}),
        ("from lib.engine import Engine as E\nE(1)", {"Engine", "Engine.__init__"}),
        ("from lib import engine\nengine.LIMIT = 4", {"LIMIT"}),
        ("def f():\n    from lib.engine import LIMIT", {"LIMIT"}),
        ("def f(engine):\n    return engine.is_idle, engine.nothing_of_theirs", {"Engine.is_idle"}),
        ("def f(engine: int):\n    return engine.is_idle", set()),
        ("class Own: ...\ndef f(engine: Own):\n    return engine.is_idle", set()),
        ("def f(engine):\n    return engine.waiting.get('a').is_last", {"Engine.waiting", "Message.is_last"}),
        ("def f(engine):\n    return engine.batch.size", {"Engine.batch", "Batch.size"}),
        ("def f(engine):\n    b = engine.batch\n    return b.size", {"Engine.batch", "Batch.size"}),
        (
            "def f(engine):\n    for row in engine.batch.rows:\n        row.is_last",
            {"Engine.batch", "Batch.rows", "Message.is_last"},
        ),
        (
            "def f(engine):\n    return [m.token_ids for i, (name, m) in enumerate(engine.waiting.items())]",
            {"Engine.waiting", "Message.token_ids"},
        ),
        (
            "def f(engine, ids):\n    return [m.token_ids for i, m in zip(ids, engine.batch.rows)]",
            {"Engine.batch", "Batch.rows", "Message.token_ids"},
        ),
        ("def f(engine):\n    return engine.waiting['a'].is_last", {"Engine.waiting", "Message.is_last"}),
        ("def f(engine):\n    return engine.step(1).is_last", {"Engine.step", "Message.is_last"}),
        ("def f(engine):\n    return getattr(engine, '_private', None)", {"Engine._private"}),
        (
            "class C:\n  def __init__(self, engine):\n    self.e = engine\n  def f(self):\n    self.e.batch",
            {"Engine.batch"},
        ),
        (
            "from lib.engine import Message\ndef f(m: 'Message | None'):\n    return m.is_last",
            {"Message", "Message.is_last"},
        ),
    ],
)
def test_uses_are_found(tmp_path: Path, code: str, names: set[str]) -> None:
    assert found(tmp_path, code) == names


def test_overridden_methods_are_found_in_all_bases(tmp_path: Path) -> None:
    code = """
        from lib.engine import Engine

        class Mixin:
            def _private(self): ...

        class Ours(Mixin, Engine):
            def step(self, x): ...
            def shared(self): ...
            def own(self): ...
    """
    assert found(tmp_path, textwrap.dedent(code)) == {
        "Engine",
        "Engine.step",
        "Engine._private",
        "lib.base:Base.shared",
    }


def test_what_a_subclass_uses_of_itself_is_found(tmp_path: Path) -> None:
    code = """
        from lib.engine import Engine

        class Ours(Engine):
            own = 1
            def f(self):
                return self.batch.size, self.own, super().is_idle
    """
    assert found(tmp_path, textwrap.dedent(code)) == {"Engine", "Engine.batch", "Batch.size", "Engine.is_idle"}


def test_variables_are_known_by_name_only_where_theirs_are_held(tmp_path: Path) -> None:
    write(library(tmp_path), {"plugin/code.py": "def f(engine):\n    return engine.is_idle"})
    uses = Uses(sources(tmp_path), "lib", CONVENTIONS, ["plugin.held"])
    uses.scan("plugin.code")
    assert not uses.found


def test_public_classes_are_no_private_names_but_their_private_and_replaced_members_are(tmp_path: Path) -> None:
    code = """
        from lib.engine import Engine

        wrap(Engine, "step", None)

        def f(engine):
            engine.is_idle
            engine._private()
    """
    init = "from lib.engine import Engine"
    assert found(tmp_path, textwrap.dedent(code), init) == {"Engine.step", "Engine._private"}
