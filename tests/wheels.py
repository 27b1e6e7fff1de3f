"""Downloads wheels of vLLM from PyPI."""

import subprocess
import sys
from pathlib import Path

CACHE = Path.home() / ".cache" / "vllm_spec_plugin" / "wheels"


class DownloadError(Exception):
    """The wheel of a version could not be had."""


def download(wanted: str, folder: Path = CACHE) -> Path:
    """Returns the wheel of a version of vLLM, from `folder` or PyPI (about 350 MB); nothing is installed.

    Raises:
        DownloadError: pip did not get it, and has said why.
    """
    pattern = f"vllm-{wanted}-*.whl"
    if not (wheels := sorted(folder.glob(pattern))):
        folder.mkdir(parents=True, exist_ok=True)
        options = ["--quiet", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--dest", str(folder)]
        command = [sys.executable, "-m", "pip", "download", *options, f"vllm=={wanted}"]
        if subprocess.run(command, check=False).returncode or not (wheels := sorted(folder.glob(pattern))):
            raise DownloadError(f"no wheel of vllm {wanted}; give a version on PyPI, such as 0.33.0")
    return wheels[0]
