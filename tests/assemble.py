"""Assembles an environment with a vLLM that has no CPU build: its Python with the libraries of an older CPU build.

    python -m tests.assemble 0.33.0 .venv-0.33.0

It runs in the environment of the CPU build. The new environment has a vLLM of its own and takes every other package
from that one. It is for tests: compiled kernels are those of the older vLLM.
"""

import argparse
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Sequence
from importlib.metadata import entry_points, version
from importlib.util import find_spec
from pathlib import Path

from tests.wheels import DownloadError, download

# What a vLLM's Python needs beyond the packages of the older build.
ADDED = {"0.33.0": ("orjson>=3.11.6",)}
# In the wheel, for CUDA: libraries, vLLM's Rust frontend, sources of kernels.
_SKIPPED = (".so", "/vllm-rs", ".hpp", ".cuh", ".h", ".cu")
_SCRIPT = (
    '#!{python}\nimport sys\n\nfrom {module} import {name}\n\nif __name__ == "__main__":\n    sys.exit({name}())\n'
)


class AssemblyError(Exception):
    """The environment cannot be assembled; the message says what to do."""


def assemble(wanted: str, folder: Path) -> None:
    """Writes the environment, in place of an earlier one.

    Raises:
        AssemblyError: this is no environment of a CPU build, or that version is not known to run on it.
        DownloadError: there is no wheel of that version.
    """
    if wanted not in ADDED:
        raise AssemblyError(f"got vLLM {wanted}; allowed: {', '.join(ADDED)}, or the CPU build's {version('vllm')}")
    if "cpu" not in version("vllm") or (spec := find_spec("vllm")) is None or spec.origin is None:
        raise AssemblyError(f"{sys.prefix} has no CPU build of vLLM; run make setup there first")
    libraries = sorted(Path(spec.origin).parent.glob("*.so"))
    if not libraries:
        raise AssemblyError(f"{sys.prefix}: its vLLM has no compiled libraries; delete it and run make setup")
    wheel = download(wanted)
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    _unpack(wheel, site, f"{wanted}+cpu")
    for library in libraries:
        _link(library, site / "vllm" / library.name)
    # Intel's OpenMP is looked for in an environment's lib folder.
    for library in (Path(sys.prefix) / "lib").glob("*.so*"):
        _link(library, folder / "lib" / library.name)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site)]
    subprocess.run([*pip, *ADDED[wanted]], check=True)
    others = Path(spec.origin).parent.parent.resolve()
    (site / "_others.pth").write_text(f"import site; site.addsitedir({str(others)!r})\n")
    _write_scripts(folder.resolve() / "bin")


def _unpack(wheel: Path, site: Path, local_version: str) -> None:
    release = local_version.partition("+")[0]
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(site, [name for name in names if name.startswith("vllm/") and not name.endswith(_SKIPPED)])
        info = site / f"vllm-{local_version}.dist-info"
        info.mkdir()
        (info / "entry_points.txt").write_bytes(archive.read(f"vllm-{release}.dist-info/entry_points.txt"))
    # "cpu" in the version is what vLLM detects the platform by.
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {local_version}\n")
    module = site / "vllm" / "_version.py"
    module.write_text(module.read_text().replace(f"'{release}'", f"'{local_version}'"))


def _link(source: Path, target: Path) -> None:
    """Makes a hard link, or a copy on another file system."""
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copy2(source, target)


def _write_scripts(folder: Path) -> None:
    """Writes the console commands of the older environment, for the new one's interpreter."""
    for point in entry_points(group="console_scripts"):
        if (Path(sys.prefix) / "bin" / point.name).is_file() and point.attr:
            script = folder / point.name
            script.write_text(_SCRIPT.format(python=folder / "python", module=point.module, name=point.attr))
            script.chmod(0o755)


def main(arguments: Sequence[str] | None = None) -> int:
    """Assembles an environment; 2 if it cannot."""
    parser = argparse.ArgumentParser(prog="tests.assemble", description=__doc__)
    parser.add_argument("version", help="of vLLM, as on PyPI")
    parser.add_argument("folder", type=Path, help="of the environment, which is replaced")
    options = parser.parse_args(arguments)
    try:
        assemble(options.version, options.folder)
    except (AssemblyError, DownloadError, zipfile.BadZipFile, subprocess.CalledProcessError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
