"""`vllm-spec init` and `vllm-spec schema`."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.unit.cli.running import run
from vllm_spec_plugin.schema.safe_yaml import parse_text

CONFIGS = sorted((Path(__file__).parents[3] / "configs").glob("*.yaml"))
SCHEMA = CONFIGS[0].with_name("plugin.schema.json")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_each_example_is_written_and_valid_anywhere(path, tmp_path):
    out = tmp_path / "mine.yaml"
    result = run("init", path.stem, "--out", out)
    assert result.exit_code == 0, result.stderr
    assert run("check", out).exit_code == 0
    text = out.read_text()
    assert f"vllm-spec check {out}" in text
    # Another machine has its own folders.
    assert str(CONFIGS[0].parents[1]) not in text
    assert text.splitlines()[0].endswith("$schema=plugin.schema.json")


def test_it_prints_without_out_and_takes_a_model():
    text = run("init", "draft_model", "--model", "Qwen/Qwen3-0.6B").stdout
    assert yaml.safe_load(text)["proposer"]["model"] == "Qwen/Qwen3-0.6B"
    assert "bundled" not in text


def test_the_schema_file_is_what_the_command_prints():
    """To update it: vllm-spec schema > configs/plugin.schema.json."""
    assert run("schema").stdout == SCHEMA.read_text()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_each_example_names_the_schema_and_follows_it(path):
    text = path.read_text()
    assert text.startswith("# yaml-language-server: $schema=plugin.schema.json\n")
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    # As editors do, by YAML 1.2: `on` is a text.
    data = parse_text(text, str(path)).data
    assert isinstance(data, dict)
    validator.validate(data)
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(data | {"unknown": 1})
