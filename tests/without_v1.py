"""Runs tests in a copy of the repository without `v1/`: `python -m tests.without_v1 ARGUMENTS_OF_PYTEST`.

First every other module of the plugin is imported, so that none needs what is gone.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# False in the copy.
HAS_V1 = (ROOT / "vllm_spec_plugin" / "v1").is_dir()
# Folders of V1, and what is built or installed.
_LEFT_OUT = ("v1", ".git", ".venv*", "build", "dist", "__pycache__", "*.egg-info")
_IMPORT_ALL = """
import importlib, pkgutil, vllm_spec_plugin
found = pkgutil.walk_packages(vllm_spec_plugin.__path__, "vllm_spec_plugin.", lambda name: None)
modules = [m.name for m in found if m.name != "vllm_spec_plugin.v1"]
for name in modules:
    importlib.import_module(name)
assert not [name for name in modules if name.startswith("vllm_spec_plugin.v1")]
print(f"{len(modules)} modules imported from {vllm_spec_plugin.__path__[0]}")
"""


def main(arguments: list[str]) -> int:
    """Runs the tests; returns pytest's exit status."""
    with tempfile.TemporaryDirectory(prefix="without-v1-") as name:
        shutil.copytree(ROOT, name, symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_OUT), dirs_exist_ok=True)
        # An editable installation would find the one of this repository.
        (Path(name) / "vllm_spec_plugin" / "v1.py").write_text('raise ImportError("there is no vllm_spec_plugin.v1")\n')
        environment = {**os.environ, "PYTHONPATH": name}
        command = [sys.executable, "-c", _IMPORT_ALL]
        subprocess.run(command, cwd=name, env=environment, check=True)
        return subprocess.run(
            [sys.executable, "-m", "pytest", *arguments], cwd=name, env=environment, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
