"""The training text: the Python sources of the running interpreter's standard library."""

import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path

_TESTS, _TABLES, _PROSE = {"test", "tests", "idle_test"}, {"encodings"}, {"pydoc_data"}
EXCLUDED_FOLDERS = {"site-packages", "dist-packages", "__pycache__"} | _TESTS | _TABLES | _PROSE
HELD_OUT_SHARE = 0.06


@dataclass(frozen=True)
class Corpus:
    """Source texts, split by file: no held-out file is ever trained on."""

    train: tuple[str, ...]
    held_out: tuple[str, ...]
    held_out_names: tuple[str, ...]


def load_corpus() -> Corpus:
    """Reads the standard library's sources.

    Returns:
        The texts. A file is held out when the hash of its relative path says so, so that the
        split does not depend on the order or the number of files.

    Raises:
        FileNotFoundError: there are no Python sources there (some distributions strip them).
    """
    root = Path(sysconfig.get_path("stdlib"))
    train, held_out = list[str](), dict[str, str]()
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if EXCLUDED_FOLDERS.intersection(relative.parts):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        digest = hashlib.sha256(relative.as_posix().encode()).digest()
        if text.strip() and int.from_bytes(digest[:4], "big") < HELD_OUT_SHARE * 2**32:
            held_out[relative.as_posix()] = text
        elif text.strip():
            train.append(text)
    if not train or not held_out:
        raise FileNotFoundError(f"no Python sources under {root}: install the standard library's .py files")
    return Corpus(tuple(train), tuple(held_out.values()), tuple(held_out))
