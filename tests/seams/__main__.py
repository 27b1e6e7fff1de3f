"""Compares the listed names with a vLLM: `make seams`, `make seams VLLM=0.33.0`, `make seams UPDATE=1`."""

import argparse
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from tests.seams.listing import LIST, PACKAGE, PLUGIN, ROOT, Listing, compare, find_uses, pins_of, report
from tests.seams.sources import Reader, Sources, folder_reader, installed, wheel_reader

WHEELS = Path.home() / ".cache" / "vllm_spec_plugin" / "wheels"


class DownloadError(Exception):
    """The wheel of a version could not be had."""


def download(wanted: str, folder: Path) -> Path:
    """Gives the wheel of a version of vLLM, from `folder` or PyPI (about 350 MB); nothing is installed.

    Raises:
        DownloadError: pip did not get it, and has said why.
    """
    pattern = f"{PACKAGE}-{wanted}-*.whl"
    if not (wheels := sorted(folder.glob(pattern))):
        folder.mkdir(parents=True, exist_ok=True)
        options = ["--quiet", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--dest", str(folder)]
        command = [sys.executable, "-m", "pip", "download", *options, f"{PACKAGE}=={wanted}"]
        if subprocess.run(command, check=False).returncode or not (wheels := sorted(folder.glob(pattern))):
            raise DownloadError(f"no wheel of {PACKAGE} {wanted}; give a version on PyPI, such as 0.33.0")
    return wheels[0]


def open_vllm(wanted: str | None) -> tuple[str, Reader]:
    """The release and the reader of an installed vLLM, or of that version's wheel.

    Raises:
        DownloadError: there is no wheel of that version.
        ModuleNotFoundError: no vLLM is installed.
    """
    if wanted is None:
        return version(PACKAGE).split("+")[0], folder_reader(installed(PACKAGE), PACKAGE)
    wheel = download(wanted, WHEELS)
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
