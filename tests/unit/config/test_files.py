"""Files of every kind: read, refused, and never a traceback."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.sizes import examples
from tests.unit.config.cases import NGRAM, message_of
from vllm_spec_plugin.config import ConfigError, NgramConfig, load_config, parse_config


def test_values_cannot_write_to_the_terminal() -> None:
    message = message_of({"proposer": {**NGRAM, "min_order": "\x1b[2J\n" + "x" * 9999}, "a\nb": 1})
    assert "\x1b" not in message
    assert len(message) < 500
    assert len(message.splitlines()) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("proposer: {method: ngram, method: ngram}", "proposer.method: got it twice, in lines 1 and 1; allowed: once"),
        ("proposer: {method: ngram}\n3: x", "got 3 as a key in line 2; allowed: names"),
        ("proposer: {method: ngram, true: 1}", "proposer: got true as a key in line 1; allowed: names"),
        ("proposer: {method: ngram, [a]: 1}", "proposer: got a list or a section as a key in line 1; allowed: names"),
        ("proposer: {method: ngram}\n---\na: 1", "not YAML: line 2, column 1: "),
        ("a: &x b", "a: unknown key (got the text 'b'); allowed: "),
        ("a: &x b\nc: *x", "line 2, column 4: aliases (*name) are not allowed"),
        ("a: &x {<<: *x}", "line 1, column 12: aliases (*name) are not allowed"),
        ("a: !!python/object/apply:os.getcwd []", "line 1, column 4: tags (!!python/object/apply:os.getcwd) are not"),
        ("a: {\n  b", "not YAML: line 2, column 4: "),
        ("proposer:\n\tmethod: ngram", "not YAML: line 2, column 1: "),
        ("a: b\x01", "not YAML: line 1, column 5: character U+0001"),
        (b"a: \xff", "not text in UTF-8: byte 4 is 0xff"),
        ("", "it is empty; allowed: "),
        ("# nothing\n", "it is empty; allowed: "),
        ("just text", "got the text 'just text'; allowed: a YAML mapping"),
        ("%YAML " + "9" * 5000, "not YAML: line 1, column "),
        ("proposer: " + "9" * 5000, "line 1, column 11: a number of 5000 digits"),
    ],
)
def test_files_that_say_something_else(written: Any, content: str | bytes, message: str) -> None:
    said = written(content)
    assert message in said
    assert said.startswith(message) or "2 mistakes" in said


def test_numbers_are_read_as_yaml_1_2_has_them(tmp_path: Path) -> None:
    path = tmp_path / "plugin.yaml"
    path.write_text("proposer: {method: ngram, min_order: 010}\nverification: {lenience: 5e-1}\n")
    config = load_config(path)
    assert isinstance(config.proposer, NgramConfig)
    assert (config.proposer.min_order, config.verification.lenience) == (10, 0.5)


@pytest.mark.parametrize(
    ("content", "limit"),
    [
        ("[" * 100_000, "nested more than 16 levels"),
        ("{a: " * 100_000, "nested more than 16 levels"),
        ("- " * 100_000, "nested more than 16 levels"),
        ("a: [" + "1," * 400_000 + "]", "more than 1000 keys and values"),
        ("#" * (1 << 20) + "\n", "larger than 1,048,576 bytes"),
    ],
)
def test_hostile_files_are_refused(written: Any, content: str, limit: str) -> None:
    assert limit in written(content)


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, reason in (
        (tmp_path / "none.yaml", "no such file"),
        (tmp_path, "a directory"),
        (tmp_path / "pipe", "not a regular file"),
        (Path("/dev/zero"), "not a regular file"),
        (tmp_path / ("x" * 300), "cannot be read: File name too long"),
        (Path("a\0b"), "cannot be read: embedded null"),
    ):
        with pytest.raises(ConfigError, match=reason):
            load_config(path)


def test_importing_is_cheap() -> None:
    code = "import sys, vllm_spec_plugin.config; print([m for m in ('vllm', 'torch', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def assert_readable(error: ConfigError, given: object) -> None:
    message, quoted = str(error), str(given).lower()
    assert "spec.yaml" in message
    assert all(line.isprintable() for line in message.split("\n"))
    leaked = [word for word in ("pydantic", "http", "traceback", "value_error") if word in message.lower()]
    # A message quotes what is wrong.
    assert all(word in quoted for word in leaked)


WORDS = """
    proposer method mode min_order max_order window draft_sampling draft_length policy tokens lenience verification
    ngram lookup frequency fixed greedy sample draft_model model draft_temperature min_confidence dtype quantization
    catch_up_tokens probabilistic float16 medusa tree branches auto shared shared_tokens shared_scope salt global
    stream_granularity stream_tokens free suffix min_probability block token
"""
KEYS = st.sampled_from(WORDS.split())
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | KEYS | st.dates() | st.binary()
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text() | st.integers() | st.none(), inner, max_size=4)
    ),
    max_leaves=10,
)
METHODS = st.sampled_from(["ngram", "draft_model", "medusa", "suffix"])
SECTIONS = st.fixed_dictionaries(
    {
        "proposer": st.fixed_dictionaries({"method": METHODS | VALUES}).flatmap(
            lambda base: st.dictionaries(KEYS, VALUES, max_size=4).map(lambda more: {**more, **base})
        )
    },
    optional={
        "draft_length": VALUES,
        "verification": VALUES,
        "stream_granularity": st.sampled_from(["free", "token", "fixed"]) | VALUES,
        "stream_tokens": VALUES,
    },
)


@given(VALUES | SECTIONS)
@settings(max_examples=examples(30, 200), deadline=None)
def test_no_value_raises_anything_else(data: object) -> None:
    try:
        parse_config(data, "spec.yaml")
    except ConfigError as error:
        assert_readable(error, data)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "spec.yaml"


YAMLISH = st.text(alphabet="abn01.-:,[]{}#&*!|>'\"%@` \n\t\\xuU?~<=", max_size=60).map(str.encode)


@given(st.binary(max_size=200) | YAMLISH | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
@example(b"HTTP")
@settings(max_examples=examples(80, 500), deadline=None)
def test_no_bytes_raise_anything_else(scratch: Path, content: bytes) -> None:
    scratch.write_bytes(content)
    try:
        load_config(scratch)
    except ConfigError as error:
        assert_readable(error, content)
