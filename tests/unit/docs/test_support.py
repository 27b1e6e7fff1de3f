"""docs/support.md says what the gates say, and was written from what the matrix found."""

import json

import pytest

import vllm_spec_plugin
from tests.engine.tiny import tiny_eagle3, tiny_model
from tests.matrix.cells import EXACT, REFUSED, ROWS, plugin_yaml, refusal
from tests.matrix.page import PAGE, RESULTS, minor, release, render
from vllm_spec_plugin.register.version import SUPPORTED
from vllm_spec_plugin.schema.errors import ConfigError

EngineArgs = pytest.importorskip("vllm.engine.arg_utils").EngineArgs
RECORDED = json.loads(RESULTS.read_text())


def test_the_page_is_written_from_the_results():
    assert PAGE.read_text() == render(RECORDED), "run: .venv/bin/python -m tests.matrix --page"


def test_every_version_that_the_gate_admits_is_shown():
    minors = [f"{major}.{i}" for major in range(2) for i in range(100)]
    assert [each for each in minors if SUPPORTED.contains(f"{each}.0")] == [minor(each) for each in RECORDED]


@pytest.mark.parametrize("version", RECORDED)
def test_no_cell_is_wrong_or_untested(version):
    rows = RECORDED[version]["rows"]
    verdicts = {(row, column): rows[row]["cells"][column]["verdict"] for row in ROWS for column in ROWS[row].columns}
    assert {cell: verdict for cell, verdict in verdicts.items() if verdict not in (EXACT, REFUSED)} == {}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Where tiny models are kept."""
    return tmp_path_factory.mktemp("models")


@pytest.mark.parametrize("name", ROWS)
def test_the_page_and_the_gate_agree(name, models, tmp_path):
    row = ROWS[name]
    model, draft = (tiny_model(row.architecture, models, noise) for noise in (0.0, 0.05))
    for column in row.columns:
        plugin = tmp_path / f"{column}.yaml"
        plugin.write_text(plugin_yaml(column, tiny_eagle3(models) if column == "eagle3" else draft))
        arguments = EngineArgs(
            model=str(model),
            skip_tokenizer_init=True,
            max_model_len=1024,
            enforce_eager=True,
            speculative_config=vllm_spec_plugin.speculative_config(plugin),
            **{"dtype": "float32", **row.options},
        )
        reasons = []
        try:
            arguments.create_engine_config()
        except ConfigError as error:
            reasons = refusal(str(error))
        recorded = RECORDED[release()]["rows"][name]["cells"][column]
        # What the target's class in vLLM gives is found out when it is loaded.
        if not reasons and recorded["reasons"] and column == "eagle3":
            assert (recorded["verdict"], name) == (REFUSED, "gemma3")
            continue
        assert (recorded["verdict"], recorded["reasons"]) == (REFUSED if reasons else EXACT, reasons), column
