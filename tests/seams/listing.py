"""The list of names of vLLM that the plugin uses, by version, and its comparison with a vLLM."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.seams.known import BY_HAND, FEATURES, ONLY
from tests.seams.pins import Pin, pin
from tests.seams.sources import Sources
from tests.seams.uses import Uses, modules_in

ROOT = Path(__file__).parents[2]
PLUGIN, TOOLS = "vllm_spec_plugin", "vllm_spec_tools"
LIST = ROOT / PLUGIN / "compat" / "seams.json"
PACKAGE = "vllm"
# Imports classes for annotations alone.
ANNOTATIONS = f"{PLUGIN}.compat.types"


@dataclass
class Listing:
    """Names of vLLM that the plugin uses, each as "module:Class.method".

    Attributes:
        pins: by version, oldest first: what its names are there.
        features: per name, the features of the plugin that use it, separated by commas.
    """

    pins: dict[str, dict[str, Pin]]
    features: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> "Listing":
        """Reads the file, in which an entry holds from its version on, until the next one."""
        data = json.loads(path.read_text())
        listing = cls({version: {} for version in data["versions"]}, {})
        for module, own in data["names"].items():
            for name, entry in own.items():
                key, now = f"{module}:{name}", None
                listing.features[key] = entry["for"]
                for version, names in listing.pins.items():
                    if (now := entry.get(version, now)) is not None:
                        names[key] = Pin(tuple(now[0]), now[1])
        return listing

    def write(self, path: Path) -> None:
        """Writes the file, a line for each name."""
        modules: dict[str, list[str]] = {}
        for key, features in sorted(self.features.items()):
            module, name = key.split(":")
            every = [(version, names.get(key)) for version, names in self.pins.items()]
            changed = [now for before, now in pairwise([("", None), *every]) if now[1] != before[1]]
            entry = {"for": features} | {version: now and dataclasses.astuple(now) for version, now in changed}
            modules.setdefault(module, []).append(f"   {json.dumps(name)}: {json.dumps(entry)}")
        parts = [f"  {json.dumps(module)}: {{\n" + ",\n".join(own) + "\n  }" for module, own in modules.items()]
        head = f'{{\n "versions": {json.dumps(list(self.pins))},\n "names": {{\n'
        path.write_text(head + ",\n".join(parts) + "\n }\n}\n")

    def updated(self, version: str, pins: dict[str, Pin], features: Mapping[str, str]) -> "Listing":
        """Returns a list with the names of a version; those of other versions stay as they are."""
        every = {**self.pins, version: pins}
        used = set().union(*every.values())
        return Listing(
            {each: every[each] for each in sorted(every, key=Version)},
            {key: own for key, own in {**self.features, **features}.items() if key in used},
        )


def find_uses(sources: Sources, version: str) -> dict[str, set[str]]:
    """Per name of vLLM that the plugin uses, its modules that do; `sources` reads the plugin and that version."""
    uses = Uses(sources, PACKAGE)
    for module in [*modules_in(ROOT, PLUGIN), *modules_in(ROOT, TOOLS)]:
        if module != ANNOTATIONS:
            uses.scan(module)
    found = {key: {module.removeprefix(f"{PLUGIN}.") for module in own} for key, own in uses.found.items()}
    for module, keys in BY_HAND.items():
        for key in keys:
            found.setdefault(key, set()).add(module)
    return {key: own for key, own in found.items() if SpecifierSet(ONLY.get(key, "")).contains(version)}


def features_of(modules: Iterable[str]) -> str:
    """The features that modules belong to, separated by commas.

    Raises:
        ValueError: a module has no feature.
    """
    found = set()
    for module in modules:
        prefixes = {p: feature for feature, own in FEATURES.items() for p in own if f"{module}.".startswith(f"{p}.")}
        if not prefixes:
            raise ValueError(f"{PLUGIN}.{module} uses {PACKAGE}: give its feature in FEATURES, tests/seams/known.py")
        found.add(prefixes[max(prefixes, key=len)])
    return ", ".join(feature for feature in FEATURES if feature in found)


def pins_of(sources: Sources, keys: Iterable[str]) -> dict[str, Pin | None]:
    """Pins the names in the vLLM that `sources` reads; None if there is no such name."""
    return {key: pin(sources, *key.split(":")) for key in keys}


def compare(before: Mapping[str, Pin], now: Mapping[str, Pin | None]) -> dict[str, tuple[str, list[str]]]:
    """Per name that changed: "gone", "signature" or "body", and the parts of the signature that differ."""
    changes: dict[str, tuple[str, list[str]]] = {}
    for key, old in sorted(before.items()):
        if (new := now.get(key)) is None:
            changes[key] = "gone", []
        elif new.signature != old.signature:
            parts = [f"- {part}" for part in old.signature if part not in new.signature]
            parts += [f"+ {part}" for part in new.signature if part not in old.signature]
            changes[key] = "signature", parts or [f"another order: {', '.join(new.signature)}"]
        elif new.body != old.body:
            changes[key] = "body", []
    return changes


def report(
    changes: Mapping[str, tuple[str, list[str]]], features: Mapping[str, str], used_by: Mapping[str, Iterable[str]]
) -> str:
    """Lists changes by feature, each with the feature's modules that use the name."""
    lines: list[str] = []
    for feature in FEATURES:
        own = [key for key in changes if feature in features[key].split(", ")]
        lines.append(f"{feature}: {f'{len(own)} changed' if own else 'unchanged'}")
        for key in sorted(own, key=lambda key: ("gone", "signature", "body").index(changes[key][0])):
            kind, parts = changes[key]
            modules = sorted(module for module in used_by.get(key, ()) if features_of([module]) == feature)
            lines.append(f"  {kind:9}  {key}  [{', '.join(modules)}]")
            lines.extend(f"             {part}" for part in parts)
    return "\n".join(lines)
