"""The systemd unit of `deploy/`, and a system that is read-only as under it."""

import shlex
from collections.abc import Mapping
from pathlib import Path

UNIT = Path(__file__).parents[1] / "deploy" / "systemd" / "vllm-spec.service"
# A user without a home, as DynamicUser makes.
USER = "64123"


def directives() -> dict[str, str]:
    """Returns the unit's settings; each is given once."""
    pairs = [line.split("=", 1) for line in UNIT.read_text().splitlines() if "=" in line and not line.startswith("#")]
    assert len({name for name, _ in pairs}) == len(pairs)
    return dict(pairs)


def environment(cache: Path) -> dict[str, str]:
    """Returns the unit's variables, with a folder in the place of its CacheDirectory."""
    words = shlex.split(directives()["Environment"].replace("%C/" + directives()["CacheDirectory"], str(cache)))
    return dict(word.split("=", 1) for word in words)


def read_only(command: list[str], cache: Path, variables: Mapping[str, str]) -> list[str]:
    """Returns a command that runs another as the unit does; needs root, and may unshare mounts.

    The file system is read-only but for /dev, /proc and a folder of the caches; /tmp is new and empty; the user is
    neither root nor known. Signals reach the inner command, as each command before it becomes the next.
    """
    script = f"""
        mount --bind {shlex.quote(str(cache))} /mnt && mount -o remount,bind,ro / && mount -t tmpfs tmpfs /tmp
        mkdir -p {shlex.quote(str(cache))} && mount --move /mnt {shlex.quote(str(cache))} || exit 9
        exec setpriv --reuid {USER} --regid {USER} --clear-groups --no-new-privs env "$@"
    """
    pairs = [f"{name}={value}" for name, value in variables.items()]
    return ["unshare", "--mount", "--propagation", "private", "bash", "-c", script, "bash", *pairs, *command]
