"""`vllm-spec certify` without engines."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.running import run
from tests.unit.tools.certify.cases import check, report
from vllm_spec_plugin.models import model_path
from vllm_spec_tools.certify import session
from vllm_spec_tools.certify.baseline import DEFAULT, QUICK
from vllm_spec_tools.certify.session import Certification
from vllm_spec_tools.certify.subject import AS_GIVEN

CONFIG = Path(__file__).parents[3] / "configs" / "ngram.yaml"
ARGUMENTS = ["certify", "--model", str(model_path("target")), "--config", str(CONFIG)]


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Certification]:
    """Collects the certifications that were asked for; each is answered "exact"."""
    seen: list[Certification] = []

    def certify(plan: Certification, *args: Any) -> Any:
        seen.append(plan)
        return report(check(), check("samples, top-k", p_value=0.5, p_two_samples=1.0))

    monkeypatch.setattr(session, "certify", certify)
    return seen


@pytest.mark.parametrize(
    ("forced", "given", "status"),
    [("exact", "exact", 0), ("not exact", "exact", 1), ("not tested", "not tested", 2), ("exact", "not tested", 3)],
)
def test_exit_status_is_the_answer(forced: str, given: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = report(check(outcome=forced), check("greedy", given, AS_GIVEN))
    monkeypatch.setattr(session, "certify", lambda *args: found)
    assert run(*ARGUMENTS).exit_code == status


@pytest.mark.parametrize("quick", [True, False])
def test_more_minutes_are_more_samples(quick: bool, plans: list[Certification]) -> None:
    usual = QUICK if quick else DEFAULT
    assert run(*ARGUMENTS, *["--quick"] * quick, "--minutes", str(3 * usual.seconds / 60)).exit_code == 0
    assert (plans[0].sizes.seconds, plans[0].sizes.samples) == (3 * usual.seconds, 3 * usual.samples)
    assert (plans[0].sizes.greedy, plans[0].sizes.quick) == (usual.greedy, quick)


def test_options_after_two_dashes_are_the_engines_and_prompts_are_rendered_for_the_model(
    plans: list[Certification], tmp_path: Path
) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a"}\n\n"b"\n{"messages": [{"role": "user", "content": "c"}]}\n')
    options = ["--", "--dtype", "bfloat16", "--tensor-parallel-size=2", "max_model_len=512", "--no-enable-lora"]
    assert run(*ARGUMENTS, "--prompts", path, *options).exit_code == 0
    own = {"dtype": "bfloat16", "tensor_parallel_size": 2, "max_model_len": 512, "enable_lora": False}
    assert (plans[0].options, plans[0].context) == (own, 2048)
    assert plans[0].prompts == ["a", "b", "# c\n"]


def test_reports_are_written(plans: list[Certification], tmp_path: Path) -> None:
    paths = [tmp_path / "r.json", tmp_path / "r.html"]
    result = run(*ARGUMENTS, "--json", paths[0], "--html", paths[1])
    assert result.exit_code == 0
    assert "Exact in 2 of 2 checks." in result.output
    assert json.loads(paths[0].read_text())["verdict"] == "exact"
    assert "Exact in 2 of 2 checks." in paths[1].read_text()
