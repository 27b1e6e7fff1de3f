"""The wheel has all that commands need outside a checkout."""

import re
import tomllib
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.wheel import build_wheel, run_installed
from vllm_spec_plugin.cli.errors import EXTRAS, Commands

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder with the unpacked wheel of the working tree."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_files_are_written_and_checked_in_an_empty_folder(installed, tmp_path):
    for method in ("ngram", "draft_model", "medusa", "cascade"):
        written = run_installed(installed, tmp_path, "init", method, "--out", f"{method}.yaml")
        assert written.returncode == 0, written.stderr
        checked = run_installed(installed, tmp_path, "check", f"{method}.yaml")
        assert checked.returncode == 0, checked.stderr
    assert "model: vllm_spec_plugin/models/draft\n" in (tmp_path / "draft_model.yaml").read_text()


def test_the_dashboard_and_the_load_tests_are_in_it(installed, tmp_path):
    package = installed / "vllm_spec_plugin"
    for name in ("grafana_dashboard.json", "prometheus.yml"):
        assert (package / "observability" / name).read_text() == (ROOT / "docs/observability" / name).read_text()
    done = run_installed(installed, tmp_path, "loadtest", "--list")
    assert done.returncode == 0, done.stderr
    assert "CodeCompletion" in done.stdout + done.stderr
    assert not (installed / "tests").exists()


def test_the_package_page_has_no_link_that_leads_nowhere(installed, tmp_path):
    def page(site: Path) -> str:
        return next(site.glob("*.dist-info/METADATA")).read_text()

    relative = re.compile(r"\]\((?!https?://|#)")
    assert relative.search((ROOT / "README.md").read_text())
    unknown, known = page(installed), page(build_wheel(tmp_path, "https://example.org/o/n"))
    assert not relative.search(unknown)
    assert not relative.search(known)
    assert "each claim on this page has a command that checks it: docs/claims.md" in unknown.lower()
    assert "[docs/claims.md](https://example.org/o/n/blob/HEAD/docs/claims.md)" in known
    assert "](https://example.org/o/n/raw/HEAD/docs/" in known
    assert "Project-URL: Repository, https://example.org/o/n\n" in known
    assert "Project-URL" not in unknown


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
