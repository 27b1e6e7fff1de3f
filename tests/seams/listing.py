"""The list of names of vLLM that the plugin uses, and its comparison with a vLLM."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.seams.conventions import CONVENTIONS, HELD_IN
from tests.seams.pins import Pin, pin
from tests.seams.sources import Reader, Sources, folder_reader
from tests.seams.uses import Uses, modules_in

ROOT = Path(__file__).parents[2]
PLUGIN = "vllm_spec_plugin"
LIST = ROOT / PLUGIN / "compat" / "seams.json"
PACKAGE = "vllm"


@dataclass
class Listing:
    """Names of vLLM, each as "module:Class.method", and what they were.

    Attributes:
        version: of the vLLM that they were read from.
        found: the names that the plugin's code shows.
        by_hand: names that it uses in ways that its code does not show.
    """

    version: str
    found: dict[str, Pin]
    by_hand: dict[str, Pin]

    @classmethod
    def read(cls, path: Path = LIST) -> "Listing":
        """Reads the file.

        Raises:
            ValueError: it is no such list.
        """
        try:
            data = json.loads(path.read_text())
            parts = [
                {f"{module}:{name}": Pin(tuple(old[0]), old[1]) for module, own in part.items() for name, old in own.items()}
                for part in (data["found"], data["by_hand"])
            ]
            return cls(data[PACKAGE], *parts)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: not a list of names: {error!r}") from None

    def write(self, path: Path = LIST) -> None:
        """Writes the file, a line for each name."""
        parts = []
        for title, part in (("found", self.found), ("by_hand", self.by_hand)):
            modules: dict[str, list[str]] = {}
            for key in sorted(part):
                module, name = key.split(":")
                line = f"{json.dumps(name)}: {json.dumps([part[key].signature, part[key].body])}"
                modules.setdefault(module, []).append(line)
            lines = [f"  {json.dumps(module)}: {{\n   " + ",\n   ".join(own) + "\n  }" for module, own in modules.items()]
            parts.append(f" {json.dumps(title)}: {{\n" + ",\n".join(lines) + "\n }")
        path.write_text(f"{{\n {json.dumps(PACKAGE)}: {json.dumps(self.version)},\n" + ",\n".join(parts) + "\n}\n")


def uses(vllm: Reader, top: Path = ROOT) -> dict[str, set[str]]:
    """Per name of vLLM that the plugin's code shows, the plugin's modules that use it."""
    found = Uses(Sources(folder_reader(top, PLUGIN), vllm), PACKAGE, CONVENTIONS, HELD_IN)
    for module in modules_in(top, PLUGIN):
        found.scan(module)
    return found.found


def pins(vllm: Reader, keys: Iterable[str]) -> dict[str, Pin | None]:
    """What names are in a vLLM; None where there is no such name."""
    sources = Sources(vllm)
    return {key: pin(sources, *key.split(":")) for key in keys}


@dataclass
class Changes:
    """What differs from the list, each by name.

    Attributes:
        gone: names that are no more.
        signature: names with another signature: before and now. Their bodies may have changed too.
        body: names with the same signature and another body.
        unlisted: names that the plugin uses and the list lacks.
        unused: names in the list's first part that the plugin uses no more.
    """

    gone: list[str] = field(default_factory=list)
    signature: dict[str, tuple[Pin, Pin]] = field(default_factory=dict)
    body: list[str] = field(default_factory=list)
    unlisted: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.gone or self.signature or self.body or self.unlisted or self.unused)


def compare(listed: Mapping[str, Pin], now: Mapping[str, Pin | None]) -> Changes:
    """Compares what names were with what they are."""
    changes = Changes()
    for key, old in sorted(listed.items()):
        new = now[key]
        if new is None:
            changes.gone.append(key)
        elif new.signature != old.signature:
            changes.signature[key] = old, new
        elif new.body != old.body:
            changes.body.append(key)
    return changes


def report(changes: Changes, used_by: Mapping[str, Iterable[str]]) -> str:
    """Lists the changes as text, each with the plugin's modules that use the name."""
    lines: list[str] = []

    def group(title: str, keys: Iterable[str]) -> None:
        every = list(keys)
        if not every:
            return
        lines.extend(["", f"{title} ({len(every)})"])
        for key in every:
            modules = sorted(module.removeprefix(f"{PLUGIN}.") for module in used_by.get(key, ()))
            lines.append(f"  {key}" + (f"  [{', '.join(modules)}]" if modules else ""))
            lines.extend(f"      {line}" for line in _difference(*changes.signature.get(key, (None, None))))

    group("Gone", changes.gone)
    group("Signature changed", changes.signature)
    group("Body changed", changes.body)
    group("Used and not in the list", changes.unlisted)
    group("In the list and not used", changes.unused)
    return "\n".join(lines[1:])


def _difference(old: Pin | None, new: Pin | None) -> list[str]:
    if old is None or new is None:
        return []
    removed = [part for part in old.signature if part not in new.signature]
    added = [part for part in new.signature if part not in old.signature]
    lines = [f"- {part}" for part in removed] + [f"+ {part}" for part in added]
    return lines or [f"another order: {', '.join(new.signature)}"]
