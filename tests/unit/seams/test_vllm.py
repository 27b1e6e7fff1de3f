"""The installed vLLM is what the plugin was written against, and the list names all that it uses of it.

The list has hundreds of names with their signatures and hashes: whatever goes wrong in finding or describing them shows
as a difference from it.
"""

import zipfile
from pathlib import Path

import pytest

from tests.seams import __main__ as command
from tests.seams.known import BY_HAND, CONVENTIONS, HELD_IN
from tests.seams.listing import LIST, PACKAGE, PLUGIN, ROOT, Listing
from tests.seams.pins import pin
from tests.seams.sources import Sources, folder_reader, installed, wheel_reader
from tests.seams.uses import Uses, modules_in


@pytest.fixture(scope="module")
def uses() -> Uses:
    sources = Sources(folder_reader(ROOT, PLUGIN), folder_reader(installed(PACKAGE), PACKAGE))
    uses = Uses(sources, PACKAGE, CONVENTIONS, HELD_IN)
    for module in modules_in(ROOT, PLUGIN):
        uses.scan(module)
    return uses


@pytest.fixture
def used(uses: Uses, monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """What the plugin uses, which the command then need not look for again."""
    used = {key: {how} for key, how in BY_HAND.items()} | uses.found
    monkeypatch.setattr(command, "find_uses", lambda sources: used)
    return used


def test_the_installed_vllm_is_the_one_that_is_listed(
    used: dict[str, set[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([]) == 0, capsys.readouterr().out


def test_what_the_code_shows_is_not_listed_by_hand(uses: Uses) -> None:
    assert not BY_HAND.keys() & uses.found.keys()


def test_every_convention_names_a_class(uses: Uses) -> None:
    keys = {key for keys in CONVENTIONS.values() for key in keys}
    found = {key: uses.sources.find(*key.split(":")) for key in keys}
    assert not [key for key, each in found.items() if each is None or each.class_node is None]


def test_another_vllm_is_compared(
    used: dict[str, set[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read = folder_reader(installed(PACKAGE), PACKAGE)
    files = {
        "vllm/v1/request.py": ("def num_tokens(self)", "def num_all_tokens(self)"),
        "vllm/v1/core/block_pool.py": ("def free_blocks(self, ", "def free_blocks(self, reason, "),
        "vllm/v1/core/sched/scheduler.py": ("self.current_step += 1", "self.current_step += 2"),
    }

    def changed(path: str) -> str | None:
        text = read(path)
        if path in files:
            assert text is not None
            assert files[path][0] in text
            return text.replace(*files[path])
        return text

    monkeypatch.setattr(command, "open_vllm", lambda wanted: (wanted, changed))
    assert command.main(["--vllm", "9.9"]) == 1
    printed = capsys.readouterr().out
    assert "Gone (1)\n  vllm.v1.request:Request.num_tokens  [" in printed
    assert "Signature changed (1)\n  vllm.v1.core.block_pool:BlockPool.free_blocks  [kv.manager]" in printed
    assert "      + reason\n" in printed
    assert "Body changed (1)\n  vllm.v1.core.sched.scheduler:Scheduler.schedule  [" in printed


def test_update_writes_the_list_down(
    used: dict[str, set[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written: list[Listing] = []
    monkeypatch.setattr(Listing, "write", lambda self: written.append(self))
    assert command.main(["--update"]) == 0
    assert written == [Listing.read(LIST)]
    used.clear()
    used["vllm.v1.request:Request.nothing"] = set()
    assert command.main(["--update"]) == 1
    assert "stop using them first:\n  vllm.v1.request:Request.nothing" in capsys.readouterr().err
    assert len(written) == 1


def test_a_wheel_is_read_without_unpacking(tmp_path: Path) -> None:
    name, code = "vllm/a.py", "class A:\n    def f(self, x=1): ...\n"
    with zipfile.ZipFile(tmp_path / "vllm.whl", "w") as wheel:
        wheel.writestr(name, code)
    wheels, files = Sources(wheel_reader(tmp_path / "vllm.whl")), Sources({name: code}.get)
    assert pin(wheels, "vllm.a", "A.f") == pin(files, "vllm.a", "A.f") is not None
