"""The wheel has all that commands need outside a checkout."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from vllm_spec_plugin.cli.errors import EXTRAS, Commands

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder with the unpacked wheel of the working tree."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    # Tracked and new files, as in a clean checkout: a build in place would leave its folder behind.
    names = [
        "git",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "vllm_spec_plugin",
        "loadtests",
        "configs",
    ]
    listed = subprocess.run(
        [*names, "docs/observability", "pyproject.toml", "README.md", "LICENSE"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    subprocess.run(["mkdir", "-p", source], check=True)
    packed = subprocess.Popen(["tar", "-c", "-T", "-"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert packed.stdin is not None
    unpack = subprocess.Popen(["tar", "-x"], cwd=source, stdin=packed.stdout)
    packed.stdin.write(listed.encode())
    packed.stdin.close()
    assert (packed.wait(), unpack.wait()) == (0, 0)
    build = "from setuptools.build_meta import build_wheel; build_wheel('../dist')"
    done = subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = (folder / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def command(installed: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs a command of the unpacked wheel in `folder`."""
    return subprocess.run(
        [sys.executable, "-P", "-c", "from vllm_spec_plugin.cli import app; app()", *words],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
    )


def test_files_are_written_and_checked_in_an_empty_folder(installed, tmp_path):
    for method in ("ngram", "draft_model", "medusa", "cascade"):
        written = command(installed, tmp_path, "init", method, "--out", f"{method}.yaml")
        assert written.returncode == 0, written.stderr
        checked = command(installed, tmp_path, "check", f"{method}.yaml")
        assert checked.returncode == 0, checked.stderr
    assert f"model: {installed}/vllm_spec_plugin/models/draft\n" in (tmp_path / "draft_model.yaml").read_text()


def test_the_dashboard_and_the_load_tests_are_in_it(installed, tmp_path):
    package = installed / "vllm_spec_plugin"
    for name in ("grafana_dashboard.json", "prometheus.yml"):
        assert (package / "observability" / name).read_text() == (ROOT / "docs/observability" / name).read_text()
    done = command(installed, tmp_path, "loadtest", "--list")
    assert done.returncode == 0, done.stderr
    assert "CodeCompletion" in done.stdout + done.stderr
    assert not (installed / "tests").exists()


@pytest.mark.parametrize(("module", "extra"), EXTRAS.items())
def test_a_command_without_its_extra_names_it(module, extra):
    app = typer.Typer(cls=Commands)
    app.callback()(lambda: None)

    @app.command()
    def needy() -> None:
        raise ModuleNotFoundError(f"No module named '{module}.part'", name=f"{module}.part")

    result = CliRunner().invoke(app, ["needy"])
    assert result.exit_code == 2
    assert f"needs {module}; install it: pip install 'vllm-spec-plugin[{extra}]'" in result.stderr
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any(requirement.startswith(module) for requirement in extras[extra])


def test_serving_imports_no_module_of_an_extra():
    """Only tools and commands import them."""
    found = [
        path
        for path in (ROOT / "vllm_spec_plugin").rglob("*.py")
        if re.search(rf"^\s*(import|from) ({'|'.join(EXTRAS)})\b", path.read_text(), re.MULTILINE)
    ]
    assert found
    assert {path.relative_to(ROOT / "vllm_spec_plugin").parts[0] for path in found} == {"tools"}
