"""The list of names of vLLM that the plugin uses, and its comparison with a vLLM."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.seams.known import BY_HAND, CONVENTIONS, HELD_IN
from tests.seams.pins import Pin, pin
from tests.seams.sources import Sources
from tests.seams.uses import Uses, modules_in

ROOT = Path(__file__).parents[2]
PLUGIN = "vllm_spec_plugin"
LIST = ROOT / PLUGIN / "compat" / "seams.json"
PACKAGE = "vllm"


@dataclass
class Listing:
    """Names of vLLM that the plugin uses, and what they were.

    Attributes:
        version: of the vLLM that they were read from.
        names: each as "module:Class.method".
    """

    version: str
    names: dict[str, Pin]

    @classmethod
    def read(cls, path: Path = LIST) -> "Listing":
        """Reads the file.

        Raises:
            ValueError: it is no such list.
        """
        try:
            data = json.loads(path.read_text())
            names = {
                f"{module}:{name}": Pin(tuple(signature), body)
                for module, own in data["names"].items()
                for name, (signature, body) in own.items()
            }
            return cls(data[PACKAGE], names)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{path}: not a list of names: {error!r}") from None

    def write(self, path: Path = LIST) -> None:
        """Writes the file, a line for each name."""
        modules: dict[str, list[str]] = {}
        for key, own in sorted(self.names.items()):
            module, name = key.split(":")
            line = f"   {json.dumps(name)}: {json.dumps([own.signature, own.body])}"
            modules.setdefault(module, []).append(line)
        parts = [f"  {json.dumps(module)}: {{\n" + ",\n".join(own) + "\n  }" for module, own in modules.items()]
        head = f'{{\n "{PACKAGE}": {json.dumps(self.version)},\n "names": {{\n'
        path.write_text(head + ",\n".join(parts) + "\n }\n}\n")


def find_uses(sources: Sources) -> dict[str, set[str]]:
    """Per name of vLLM that the plugin uses, its modules that do, or how it does; `sources` reads both packages."""
    uses = Uses(sources, PACKAGE, CONVENTIONS, HELD_IN)
    for module in modules_in(ROOT, PLUGIN):
        uses.scan(module)
    return {key: {how} for key, how in BY_HAND.items()} | uses.found


def pins_of(sources: Sources, keys: Iterable[str]) -> dict[str, Pin | None]:
    """What names are in the vLLM that `sources` reads; None where there is no such name."""
    return {key: pin(sources, *key.split(":")) for key in keys}


@dataclass
class Changes:
    """What differs from the list, each by name.

    Attributes:
        gone: names that are no more.
        signature: names with another signature: before and now. Their bodies may have changed too.
        body: names with the same signature and another body.
        unlisted: names that the plugin uses and the list lacks.
        unused: names in the list that the plugin uses no more.
    """

    gone: list[str] = field(default_factory=list)
    signature: dict[str, tuple[Pin, Pin]] = field(default_factory=dict)
    body: list[str] = field(default_factory=list)
    unlisted: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.gone or self.signature or self.body or self.unlisted or self.unused)


def compare(listed: Mapping[str, Pin], now: Mapping[str, Pin | None], used: Iterable[str]) -> Changes:
    """Compares the list with what its names are now, and with the names that are used."""
    used = set(used)
    changes = Changes(unlisted=sorted(used - listed.keys()), unused=sorted(listed.keys() - used))
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
