"""Compares the listed names with a vLLM: `make seams`, `make seams VLLM=0.33.0`, `make seams UPDATE=1`."""

import argparse
import sys
import zipfile
from collections.abc import Sequence
from importlib.metadata import version

from tests.seams.listing import LIST, PACKAGE, PLUGIN, ROOT, Listing, compare, find_uses, pins_of, report
from tests.seams.sources import Reader, Sources, folder_reader, installed, wheel_reader
from tests.wheels import DownloadError, download


def open_vllm(wanted: str | None) -> tuple[str, Reader]:
    """The release and the reader of an installed vLLM, or of that version's wheel.

    Raises:
        DownloadError: there is no wheel of that version.
        ModuleNotFoundError: no vLLM is installed.
    """
    if wanted is None:
        return version(PACKAGE).split("+")[0], folder_reader(installed(PACKAGE), PACKAGE)
    wheel = download(wanted)
    try:
        return wanted, wheel_reader(wheel)
    except zipfile.BadZipFile:
        raise DownloadError(f"{wheel} is damaged: delete it and try again") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints what changed; 1 if anything did, 2 if it could not be compared."""
    parser = argparse.ArgumentParser(prog="tests.seams", description=__doc__)
    parser.add_argument("--vllm", metavar="VERSION", help="compare with this version's wheel, not the installed vLLM")
    parser.add_argument("--update", action="store_true", help="write down what the names are in that vLLM")
    options = parser.parse_args(arguments)
    try:
        found_version, vllm = open_vllm(options.vllm)
    except (DownloadError, ModuleNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    # What the plugin's code shows is looked up in the vLLM that it was written for.
    ours = Sources(folder_reader(ROOT, PLUGIN), folder_reader(installed(PACKAGE), PACKAGE))
    theirs = ours if options.vllm is None else Sources(vllm)
    used_by = find_uses(ours)
    if options.update:
        names = pins_of(theirs, used_by)
        if gone := sorted(key for key, pin in names.items() if pin is None):
            print(f"vLLM {found_version} lacks these; stop using them first:\n  " + "\n  ".join(gone), file=sys.stderr)
            return 1
        Listing(found_version, {key: pin for key, pin in names.items() if pin is not None}).write()
        print(f"{LIST.name}: {len(names)} names of vLLM {found_version}")
        return 0
    listing = Listing.read()
    changes = compare(listing.names, pins_of(theirs, listing.names), used_by)
    print(f"vLLM {found_version}, compared with {len(listing.names)} names listed for vLLM {listing.version}\n")
    print(report(changes, used_by) if changes else "Nothing changed.")
    return int(bool(changes))


if __name__ == "__main__":
    sys.exit(main())
