"""Compares names of vLLM between versions: `make seams`, `make seams VLLM=0.33.0`, `make seams UPDATE=1`."""

import argparse
import sys
import zipfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from packaging.version import Version

from tests.seams.listing import (
    LIST,
    PACKAGE,
    PLUGIN,
    ROOT,
    TOOLS,
    Listing,
    compare,
    features_of,
    find_uses,
    pins_of,
    report,
)
from tests.seams.pins import Pin
from tests.seams.sources import Root, Sources
from tests.wheels import DownloadError, download


def open_vllm(wanted: str | None) -> tuple[str, Root]:
    """The release of the installed vLLM and the folder of its package, or that version and its wheel.

    Raises:
        DownloadError: there is no wheel of that version.
        ModuleNotFoundError: no vLLM is installed.
    """
    if wanted is None:
        spec = find_spec(PACKAGE)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"{PACKAGE} is not installed")
        return version(PACKAGE).split("+")[0], Path(spec.origin).parent.parent
    wheel = download(wanted)
    try:
        return wanted, zipfile.Path(wheel)
    except zipfile.BadZipFile:
        raise DownloadError(f"{wheel} is damaged: delete it and try again") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints what changed; 1 if the plugin's list must follow, 2 if nothing could be compared."""
    parser = argparse.ArgumentParser(prog="tests.seams", description=__doc__)
    parser.add_argument("--vllm", metavar="VERSION", help="this version, not the installed one")
    parser.add_argument("--update", action="store_true", help="write down what the names are in that vLLM")
    options = parser.parse_args(arguments)
    try:
        return _update(options.vllm) if options.update else _compare(options.vllm)
    except (DownloadError, ModuleNotFoundError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _sources(vllm: Root) -> Sources:
    return Sources({PLUGIN: ROOT, TOOLS: ROOT, PACKAGE: vllm})


def _update(wanted: str | None) -> int:
    found, vllm = open_vllm(wanted)
    sources = _sources(vllm)
    used_by = find_uses(sources, found)
    pins = pins_of(sources, used_by)
    if gone := sorted(key for key, pin in pins.items() if pin is None):
        print(f"vLLM {found} lacks these. Stop using them first; if only code for other versions does, say so in ONLY,")
        print("tests/seams/known.py:", *gone, sep="\n  ")
        return 1
    names = {key: pin for key, pin in pins.items() if pin is not None}
    features = {key: features_of(modules) for key, modules in used_by.items()}
    Listing.read(LIST).updated(found, names, features).write(LIST)
    print(f"{LIST.name}: {len(names)} names of vLLM {found}")
    return 0


def _compare(wanted: str | None) -> int:
    listing, (own, vllm) = Listing.read(LIST), open_vllm(None)
    used_by = find_uses(_sources(vllm), own)
    now: Mapping[str, Pin | None]
    if wanted in listing.pins:
        earlier = [each for each in listing.pins if Version(each) < Version(wanted)]
        if not earlier:
            raise ValueError(f"vLLM {wanted} is the first in {LIST.name}; allowed: a later one")
        found, before, now = wanted, earlier[-1], listing.pins[wanted]
    else:
        found, vllm = open_vllm(wanted)
        before = found if found in listing.pins else list(listing.pins)[-1]
        now = pins_of(_sources(vllm), listing.pins[before])
    changes = compare(listing.pins[before], now)
    print(f"vLLM {found}, compared with {len(listing.pins[before])} names listed for vLLM {before}\n")
    print(report(changes, listing.features, used_by))
    stale = set()
    if before == found:
        listed = {key: listing.features[key] for key in listing.pins[found]}
        stale = listed.items() ^ {key: features_of(modules) for key, modules in used_by.items()}.items()
    if stale:
        print(f"\nNot in {LIST.name} as in the plugin's code; run make seams UPDATE=1:")
        print("", *sorted({key for key, _ in stale}), sep="\n  ")
    return int(bool(stale or changes) and wanted not in listing.pins)


if __name__ == "__main__":
    sys.exit(main())
