"""Each part that the plugin replaces of the installed vLLM is listed, and is as listed."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.seams import __main__ as seams

NAMES = {"vllm.a:A.kept": {"v1.runner"}, "vllm.a:A.other": {"v1.runner"}, "vllm.b:gone": {"compat.cpu"}}
CODE = 'class A:\n    def kept(self): """Text."""; return 1\n    def other(self, x=0): return x\n'


def test_the_installed_vllm_is_as_listed() -> None:
    """In another process: the modules of the plugin patch vLLM as they are imported."""
    done = subprocess.run([sys.executable, "-m", "tests.seams"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A list of three names of vLLM 0.32.0."""
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/a.py").write_text(CODE)
    (tmp_path / "vllm/b.py").write_text("def gone(): ...\n")
    pins = {key: seams.code_hash(tmp_path, key) for key in NAMES}
    assert len(set(pins.values()) - {None}) == 3
    monkeypatch.setattr(seams, "LIST", tmp_path / "seams.json")
    monkeypatch.setattr(seams, "names_in_use", lambda: NAMES)
    monkeypatch.setattr(seams, "download", lambda wanted: tmp_path / "vllm.whl")
    seams.write_list({"0.32.0": pins})
    return tmp_path


def test_a_wheel_is_compared_with_the_newest_listed_version(listed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Comments and docstrings do not count."""
    with zipfile.ZipFile(listed / "vllm.whl", "w") as wheel:
        wheel.writestr("vllm/a.py", CODE.replace("Text", "Other").replace("x=0", "x=1") + "# the end\n")
    assert seams.main(["--vllm", "9.9"]) == 1
    lines = capsys.readouterr().out.splitlines()[1:]
    assert lines == ["  gone     vllm.b:gone  [compat.cpu]", "  changed  vllm.a:A.other  [v1.runner]"]
    assert seams.main(["--vllm", "9.9", "--update"]) == 1
    assert seams.main(["--vllm", "0.32.0"]) == 2
    with zipfile.ZipFile(listed / "vllm.whl", "a") as wheel:
        wheel.writestr("vllm/b.py", "def gone(): ...\n")
    assert seams.main(["--vllm", "9.9", "--update"]) == 0
    assert list(json.loads((listed / "seams.json").read_text())) == ["0.32.0", "9.9"]
    assert seams.main(["--vllm", "9.9"]) == 0
