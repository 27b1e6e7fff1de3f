"""Reads one small, untrusted YAML file in bounded time, memory and depth."""

import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from yaml.nodes import Node, ScalarNode, SequenceNode

from vllm_spec_plugin.schema.errors import ConfigError, Mistake, join_key, show, show_text

MAX_BYTES = 1 << 20
MAX_DEPTH = 16
MAX_VALUES = 1000

_TAG = "tag:yaml.org,2002:"
_INT, _FLOAT, _BOOL, _NULL, _STR = (_TAG + name for name in ("int", "float", "bool", "null", "str"))


class _Refused(yaml.MarkedYAMLError):
    """Valid YAML that a configuration may not have."""


class _Loader(
    yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser, yaml.composer.Composer, yaml.resolver.BaseResolver
):
    """Builds the node tree only, so that the text cannot run Python code.

    Scalars follow YAML 1.2: PyYAML's own rules read 1e-2 as text, 010 as 8 and `on` as true.
    """

    def __init__(self, text: str) -> None:
        yaml.reader.Reader.__init__(self, text)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)
        yaml.composer.Composer.__init__(self)
        yaml.resolver.BaseResolver.__init__(self)
        self._depth = 0
        self._values = 0

    def compose_node(self, parent: Node | None, index: object) -> Node | None:
        """Composes a node within the bounds. Called once per key and value."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        mark = event.start_mark
        if isinstance(event, yaml.AliasEvent):
            raise _Refused(problem="aliases (*name) are not allowed here: write the value out", problem_mark=mark)
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise _Refused(problem=f"tags ({show_text(tag.replace(_TAG, '!!'))}) are not allowed", problem_mark=mark)
        self._values += 1
        if self._values > MAX_VALUES:
            raise _Refused(problem=f"more than {MAX_VALUES} keys and values", problem_mark=mark)
        if self._depth >= MAX_DEPTH:
            raise _Refused(problem=f"nested more than {MAX_DEPTH} levels deep", problem_mark=mark)
        self._depth += 1
        try:
            node: Node | None = super().compose_node(parent, index)  # type: ignore[arg-type]
        finally:
            self._depth -= 1
        return node


for _tag, _pattern, _first in (
    (_BOOL, r"true|True|TRUE|false|False|FALSE", "tTfF"),
    (_NULL, r"null|Null|NULL|~|", "nN~"),
    (_INT, r"[-+]?[0-9]+", "-+0123456789"),
    (
        _FLOAT,
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
):
    _Loader.add_implicit_resolver(_tag, re.compile(rf"^(?:{_pattern})$"), [*_first, *([""] if _tag == _NULL else [])])


@dataclass
class YamlDocument:
    """A file's content as plain Python values.

    Attributes:
        data: the values, without the keys of `mistakes`.
        mistakes: duplicate keys, and keys that are not text.
    """

    data: object = None
    mistakes: list[Mistake] = field(default_factory=list)

    def convert(self, node: Node, path: str) -> object:
        """Returns the value of a node, and adds its mistakes to `mistakes`."""
        if isinstance(node, ScalarNode):
            return _scalar(node)
        if isinstance(node, SequenceNode):
            return [self.convert(item, f"{path}[{i}]") for i, item in enumerate(node.value)]
        lines: dict[str, int] = {}
        values: dict[str, object] = {}
        for key_node, value_node in node.value:
            key, line = self._key(key_node, path), key_node.start_mark.line + 1
            if key is None:
                continue
            value = self.convert(value_node, join_key(path, key))
            if key in lines:
                where = f"got it twice, in lines {lines[key]} and {line}; allowed: once"
                self.mistakes.append(Mistake(join_key(path, key), where))
                continue
            lines[key], values[key] = line, value
        return values

    def _key(self, node: Node, path: str) -> str | None:
        if isinstance(node, ScalarNode) and node.tag == _STR:
            return str(node.value)
        line = node.start_mark.line + 1
        got = show(_scalar(node)) if isinstance(node, ScalarNode) else "a list or a section"
        self.mistakes.append(Mistake(path, f"got {got} as a key in line {line}; allowed: names"))
        return None


def _scalar(node: ScalarNode) -> object:
    text = str(node.value)
    if node.tag == _INT:
        if len(text) > 100:  # Python refuses to parse numbers of thousands of digits
            raise _Refused(problem=f"a number of {len(text)} digits", problem_mark=node.start_mark)
        return int(text)
    if node.tag == _FLOAT:
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    if node.tag == _BOOL:
        return text.lower() == "true"
    return None if node.tag == _NULL else text


def read_text(path: Path, source: str) -> str:
    """Reads a regular file of at most `MAX_BYTES`.

    Raises:
        ConfigError: there is no such file, or it cannot be read.
    """
    try:
        mode = path.stat().st_mode
        raw = b""
        if stat.S_ISREG(mode):  # opening a pipe would wait for its writer
            with path.open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{source}: no such file; allowed: a readable YAML file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{source}: cannot be read: {reason}; allowed: a readable YAML file") from None
    if not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
        raise ConfigError(f"{source}: {kind}; allowed: a YAML file")
    return decode(raw, source)


def decode(raw: bytes, source: str) -> str:
    """Decodes at most `MAX_BYTES` of UTF-8.

    Raises:
        ConfigError: there are more bytes, or they are not UTF-8.
    """
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{source}: larger than {MAX_BYTES:,} bytes; allowed: at most that")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        at = f"byte {error.start + 1} is 0x{raw[error.start]:02x}"
        raise ConfigError(f"{source}: not text in UTF-8: {at}; allowed: UTF-8") from None


def parse_text(text: str, source: str) -> YamlDocument:
    """Parses the single document in `text`.

    Raises:
        ConfigError: it is not YAML, or exceeds the bounds.
    """
    loader = None
    document = YamlDocument()
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is not None:
            document.data = document.convert(node, "")
    except _Refused as error:
        raise ConfigError(f"{source}: {_position(error.problem_mark)}: {error.problem}") from None
    except yaml.MarkedYAMLError as error:
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        position = _position(error.problem_mark or error.context_mark)
        raise ConfigError(f"{source}: not YAML: {position}: {show_text(problem, 200)}") from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        position = f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"
        raise ConfigError(f"{source}: not YAML: {position}: character U+{ord(text[error.position]):04X}") from None
    except Exception as error:  # PyYAML raises other errors for some malformed escapes and directives
        position = _position(loader.get_mark()) if loader else "line 1, column 1"
        raise ConfigError(f"{source}: not YAML: {position}: {show_text(str(error), 200)}") from None
    return document


def _position(mark: yaml.Mark | None) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}" if mark else "somewhere"
