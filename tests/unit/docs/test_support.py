"""docs/support.md says what the gates say; it and others were written from what was found."""

import copy
import json
from typing import Any

import pytest

import vllm_spec_plugin
from tests.engine.v2 import page as v2
from tests.matrix import native
from tests.matrix import page as matrix
from tests.matrix.cells import EXACT, REFUSED, ROWS, plugin_yaml, refusal
from tests.matrix.page import PAGE, RESULTS, minor, release
from tests.matrix.running import columns_of
from tests.parameters import page as parameters
from vllm_spec_plugin.gate.rules import TESTED_CONNECTORS
from vllm_spec_plugin.metrics.counters import WITHOUT_DRAFTS
from vllm_spec_plugin.register.version import SUPPORTED
from vllm_spec_plugin.schema.errors import ConfigError

EngineArgs = pytest.importorskip("vllm.engine.arg_utils").EngineArgs
RECORDED = json.loads(RESULTS.read_text())


def test_pages_are_written_from_the_results():
    for module, command in ((matrix, "tests.matrix"), (v2, "tests.engine.v2"), (parameters, "tests.e2e.fuzz")):
        text, recorded = module.PAGE.read_text(), json.loads(module.RESULTS.read_text())
        assert text == module.with_tables(text, recorded), f"run: .venv/bin/python -m {command} --page"
    text = PAGE.read_text()
    assert not [name for name in (*TESTED_CONNECTORS, *WITHOUT_DRAFTS) if f"`{name}`" not in text]


def test_every_version_that_the_gate_admits_is_shown():
    minors = [f"{major}.{i}" for major in range(2) for i in range(100)]
    assert [each for each in minors if SUPPORTED.contains(f"{each}.0")] == [minor(each) for each in RECORDED]


@pytest.mark.parametrize("version", RECORDED)
def test_no_cell_is_wrong_or_untested(version):
    rows = RECORDED[version]["rows"]
    verdicts = {(row, column): rows[row]["cells"][column]["verdict"] for row in ROWS for column in columns_of(row)}
    good = (EXACT, REFUSED, native.NOT_RUNNABLE)
    assert {cell: verdict for cell, verdict in verdicts.items() if verdict not in good} == {}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folder of the tiny models."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture
def one_model_config(monkeypatch):
    """Reads a target once for all columns: that takes most of the time of a configuration."""
    create = EngineArgs.create_model_config
    made: list[Any] = []

    def create_model_config(self):
        if not made:
            made.append(create(self))
        return copy.deepcopy(made[0])

    monkeypatch.setattr(EngineArgs, "create_model_config", create_model_config)


@pytest.mark.usefixtures("one_model_config")
@pytest.mark.parametrize("name", ROWS)
def test_the_page_and_the_gate_agree(name, models, tmp_path):
    row = ROWS[name]
    folders = row.models(models)
    for column in columns_of(name):
        own = native.COLUMNS.get(column)
        if own is not None and own.runner == "v2":
            continue
        plugin = tmp_path / f"{column}.yaml"
        plugin.write_text(native.native_yaml(own, folders) if own else plugin_yaml(column, folders))
        arguments = EngineArgs(
            model=str(folders["target"]),
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
        if recorded["verdict"] == native.NOT_RUNNABLE:
            assert not reasons, column
            continue
        # What the target's class in vLLM gives is found out when it is loaded.
        if not reasons and recorded["reasons"] and column == "eagle3":
            assert (recorded["verdict"], name) == (REFUSED, "gemma3")
            continue
        assert (recorded["verdict"], recorded["reasons"]) == (REFUSED if reasons else EXACT, reasons), column
