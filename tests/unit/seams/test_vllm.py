"""The list names all that the plugin uses of the installed vLLM, as it is there; versions are compared by feature.

The list has hundreds of names with their signatures and hashes: whatever goes wrong in finding or describing them shows
as a difference from it.
"""

import zipfile
from pathlib import Path

import pytest

from tests.seams import __main__ as command
from tests.seams import listing
from tests.seams.known import BY_HAND
from tests.seams.listing import LIST, PACKAGE, PLUGIN, ROOT, TOOLS, Listing, features_of, find_uses
from tests.seams.pins import Pin
from tests.seams.sources import Sources

BEFORE, AFTER = Pin(("self",), "1"), Pin(("self", "reason"), "1")
OURS, VLLM = command.open_vllm(None)


@pytest.fixture(scope="module")
def sources() -> Sources:
    return Sources({PLUGIN: ROOT, TOOLS: ROOT, PACKAGE: VLLM})


@pytest.fixture(scope="module")
def found(sources: Sources) -> dict[str, set[str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "BY_HAND", {})
        return find_uses(sources, OURS)


@pytest.fixture
def used(found: dict[str, set[str]], monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """Names that the plugin uses, which the command then need not look for again."""
    used = {key: {*modules} for key, modules in found.items()}
    for module, keys in BY_HAND.items():
        for key in keys:
            used.setdefault(key, set()).add(module)
    monkeypatch.setattr(command, "find_uses", lambda sources, version: used)
    return used


@pytest.fixture
def list_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A copy of the list, for the command to write."""
    monkeypatch.setattr(command, "LIST", tmp_path / "seams.json")
    (tmp_path / "seams.json").write_text(LIST.read_text())
    return tmp_path / "seams.json"


@pytest.mark.usefixtures("used")
def test_the_installed_vllm_is_as_listed(list_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 0, capsys.readouterr().out
    assert "\nV1's trees: unchanged\n" in capsys.readouterr().out
    assert command.main(["--update"]) == 0
    assert list_file.read_text() == LIST.read_text()


def test_what_the_code_shows_is_not_listed_by_hand(found: dict[str, set[str]]) -> None:
    assert not [(module, key) for module, keys in BY_HAND.items() for key in keys if module in found.get(key, ())]


@pytest.mark.usefixtures("used")
def test_a_wheel_is_compared_with_the_newest_listed_version(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], list_file: Path, tmp_path: Path
) -> None:
    own = Listing.read(LIST)
    changed = {
        "vllm.v1.request:Request.num_tokens": ("def num_tokens(self)", "def num_all_tokens(self)"),
        "vllm.v1.core.block_pool:BlockPool.free_blocks": ("def free_blocks(self, ", "def free_blocks(self, reason, "),
        "vllm.v1.core.sched.scheduler:Scheduler.schedule": ("self.current_step += 1", "self.current_step += 2"),
    }
    Listing({OURS: {key: own.pins[OURS][key] for key in changed}}, own.features).write(list_file)
    with zipfile.ZipFile(tmp_path / "vllm.whl", "w") as wheel:
        for key, (old, new) in changed.items():
            path = f"{key.split(':')[0].replace('.', '/')}.py"
            text = (VLLM / path).read_text()
            assert old in text
            wheel.writestr(path, text.replace(old, new))
    monkeypatch.setattr(command, "download", lambda wanted: tmp_path / "vllm.whl")
    assert command.main(["--vllm", "9.9"]) == 1
    printed = capsys.readouterr().out
    assert f"compared with 3 names listed for vLLM {OURS}\n" in printed
    chains, _, others = printed.partition("\nV1's trees: unchanged\n")
    assert "\nV1's chains: 3 changed\n  gone       vllm.v1.request:Request.num_tokens  [" in chains
    assert (
        "  signature  vllm.v1.core.block_pool:BlockPool.free_blocks  [v1.kv.manager]\n             + reason\n" in chains
    )
    assert "  body       vllm.v1.core.sched.scheduler:Scheduler.schedule  [" in chains
    assert "\nAPI: unchanged\n" in others


@pytest.mark.usefixtures("used")
def test_listed_versions_are_compared_without_a_wheel(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], list_file: Path
) -> None:
    pins = {"0.1.0": {"vllm.a:f": BEFORE, "vllm.a:g": BEFORE}, "0.2.0": {"vllm.a:f": AFTER}}
    Listing(pins, {"vllm.a:f": "V1's chains, V1's heads", "vllm.a:g": "V1's trees"}).write(list_file)
    assert command.main(["--vllm", "0.2.0"]) == 0
    printed = capsys.readouterr().out
    for feature in ("V1's chains", "V1's heads"):
        assert f"\n{feature}: 1 changed\n  signature  vllm.a:f  []\n             + reason\n" in printed
    assert "\nV1's trees: 1 changed\n  gone       vllm.a:g  []\n" in printed
    assert "\ngate: unchanged\n" in printed
    assert command.main(["--vllm", "0.1.0"]) == 2
    assert "error: vLLM 0.1.0 is the first in seams.json" in capsys.readouterr().err


def test_an_update_keeps_what_is_listed_of_other_versions(tmp_path: Path) -> None:
    first = Listing(
        {"0.9.0": {"vllm.a:f": BEFORE, "vllm.a:g": BEFORE}}, {"vllm.a:f": "V1's chains", "vllm.a:g": "trees"}
    )
    both = first.updated(
        "0.10.0", {"vllm.a:f": BEFORE, "vllm.b:g": AFTER}, {"vllm.a:f": "V1's chains", "vllm.b:g": "trees"}
    )
    both.write(tmp_path / "both.json")
    assert Listing.read(tmp_path / "both.json") == both
    assert list(both.pins) == ["0.9.0", "0.10.0"]
    assert both.pins["0.9.0"] == first.pins["0.9.0"]
    # What is the same in both is written once.
    assert (tmp_path / "both.json").read_text().count('["self"]') == 2
    none = both.updated("0.9.0", {}, {}).updated("0.10.0", {"vllm.a:f": BEFORE}, {"vllm.a:f": "V1's chains"})
    assert none.features == {"vllm.a:f": "V1's chains"}


def test_names_that_a_version_lacks_are_not_listed(
    used: dict[str, set[str]], list_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    used["vllm.v1.request:Request.nothing"] = {"v1.kv.manager"}
    assert command.main(["--update"]) == 1
    assert "lacks these. Stop using them first" in (out := capsys.readouterr().out)
    assert "  vllm.v1.request:Request.nothing\n" in out
    assert list_file.read_text() == LIST.read_text()


def test_code_for_one_version_may_use_names_of_it_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for path, text in {f"{PLUGIN}/v1/kv/a.py": "from vllm.a import f, g\n", "vllm/a.py": "def f(): ...\n"}.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    sources = Sources({PLUGIN: tmp_path, PACKAGE: tmp_path})
    monkeypatch.setattr(listing, "modules_in", lambda top, package: ["vllm_spec_plugin.v1.kv.a"])
    monkeypatch.setattr(listing, "BY_HAND", {})
    monkeypatch.setattr(listing, "ONLY", {"vllm.a:g": ">=0.33"})
    assert find_uses(sources, "0.32.0") == {"vllm.a:f": {"v1.kv.a"}}
    assert find_uses(sources, "0.33.0") == {"vllm.a:f": {"v1.kv.a"}, "vllm.a:g": {"v1.kv.a"}}


def test_features_follow_from_modules() -> None:
    assert features_of(["v1.trees", "v1.runner", "v1.kv.tree_forks"]) == "V1's chains, V1's trees"
    with pytest.raises(ValueError, match=r"vllm_spec_plugin.draft_plan uses vllm: give its feature in FEATURES"):
        features_of(["draft_plan"])
