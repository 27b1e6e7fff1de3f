"""The wheels have all that servers and commands need outside a checkout."""

import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from importlib.metadata import distributions
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import vllm_spec_plugin
import vllm_spec_tools
from tests.wheel import build_files, build_wheels, run_installed
from vllm_spec_plugin.command import main
from vllm_spec_tools.cli.errors import EXTRAS, Commands

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> tuple[Path, Path]:
    """Folders with the unpacked wheels of the working tree: of the plugin, and of the tools."""
    return build_wheels(tmp_path_factory.mktemp("wheels"))


def test_files_are_written_and_checked_in_an_empty_folder(installed, tmp_path):
    for method in ("draft_model", "cascade"):
        written = run_installed(installed, tmp_path, "init", method, "--out", f"{method}.yaml")
        assert written.returncode == 0, written.stderr
        checked = run_installed(installed, tmp_path, "check", f"{method}.yaml")
        assert checked.returncode == 0, checked.stderr
    assert "model: vllm_spec_plugin/models/draft\n" in (tmp_path / "draft_model.yaml").read_text()


def test_the_dashboard_and_the_load_tests_are_in_it(installed, tmp_path):
    plugin, tools = installed
    for name in ("grafana_dashboard.json", "prometheus.yml"):
        packed = tools / "vllm_spec_tools/observability" / name
        assert packed.read_text() == (ROOT / "docs/observability" / name).read_text()
    done = run_installed(installed, tmp_path, "loadtest", "--list")
    assert done.returncode == 0, done.stderr
    assert "CodeCompletion" in done.stdout + done.stderr
    packages = [{path.name for path in site.iterdir() if path.suffix != ".dist-info"} for site in (plugin, tools)]
    assert packages == [{"vllm_spec_plugin"}, {"vllm_spec_tools", "loadtests"}]


def test_the_package_page_has_no_link_that_leads_nowhere(installed, tmp_path):
    def page(site: Path) -> str:
        return next(site.glob("*.dist-info/METADATA")).read_text()

    relative = re.compile(r"\]\((?!https?://|#)")
    assert relative.search((ROOT / "README.md").read_text())
    unknown, known = page(installed[0]), page(build_wheels(tmp_path, "https://example.org/o/n")[0])
    assert not relative.search(unknown)
    assert not relative.search(known)
    assert "each claim on this page has a command that checks it: docs/claims.md" in unknown.lower()
    assert "[docs/claims.md](https://example.org/o/n/blob/HEAD/docs/claims.md)" in known
    pictures = (ROOT / "README.md").read_text().count("![")
    assert known.count("](https://example.org/o/n/raw/HEAD/docs/") == pictures
    assert "Project-URL: Repository, https://example.org/o/n\n" in known
    assert "Project-URL" not in unknown


def test_both_wheels_install_into_a_clean_environment_and_leave_nothing_behind(tmp_path):
    """vLLM and other dependencies are those of the tests, after the wheels on the path."""
    folder, python = tmp_path / "environment", tmp_path / "environment/bin/python"
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")

    def run(*words):
        environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        return subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)

    def pip(*words):
        done = run(sys.executable, "-m", "pip", "--python", python, *words, "--disable-pip-version-check")
        assert done.returncode == 0, done.stderr

    pip("install", "--no-index", "--no-deps", *build_files(tmp_path))
    others = site / "others.pth"
    others.write_text(sysconfig.get_path("purelib") + "\n")
    shown = run(folder / "bin/vllm-spec", "--version")
    assert vllm_spec_plugin.__version__ in shown.stdout, shown.stderr
    code = "import vllm_spec_plugin, vllm_spec_tools; print(vllm_spec_plugin.__file__, vllm_spec_tools.__file__)"
    assert run(python, "-c", code).stdout.count(str(site)) == 2
    found = [entry for one in distributions(path=[str(site)]) for entry in one.entry_points]
    assert {entry.group for entry in found} >= {"console_scripts", "vllm.general_plugins"}
    written = run(folder / "bin/vllm-spec", "init", "suffix", "--out", "plugin.yaml")
    assert written.returncode == 0, written.stderr
    others.unlink()
    pip("uninstall", "-y", "vllm-spec-plugin", "vllm-spec-tools")
    assert not list(site.iterdir())
    assert not list(folder.glob("bin/vllm-spec*"))


@pytest.mark.parametrize(("module", "extra"), EXTRAS.items())
def test_a_command_without_its_extra_names_it(module, extra):
    app = typer.Typer(cls=Commands)
    app.callback()(lambda: None)

    @app.command()
    def needy() -> None:
        raise ModuleNotFoundError(f"No module named '{module}.part'", name=f"{module}.part")

    result = CliRunner().invoke(app, ["needy"])
    assert result.exit_code == 2
    assert f"needs {module}; install it: pip install 'vllm-spec-tools[{extra}]'" in result.stderr
    extras = tomllib.loads((ROOT / "vllm_spec_tools/pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any(requirement.startswith(module) for requirement in extras[extra])


def test_without_the_tools_the_command_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm_spec_tools", None)
    monkeypatch.delitem(sys.modules, "vllm_spec_tools.cli", raising=False)
    with pytest.raises(SystemExit) as raised:
        main()
    assert raised.value.code == 2
    assert capsys.readouterr().err.endswith("install it: pip install vllm-spec-tools\n")


def test_both_wheels_have_one_version():
    tools = tomllib.loads((ROOT / "vllm_spec_tools/pyproject.toml").read_text())["project"]
    assert vllm_spec_tools.__version__ == vllm_spec_plugin.__version__
    assert f"vllm-spec-plugin=={vllm_spec_plugin.__version__}" in tools["dependencies"]
