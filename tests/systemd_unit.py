"""The systemd unit of `deploy/`, and a system that is read-only as under it."""

import shlex
from pathlib import Path

UNIT = Path(__file__).parents[1] / "deploy" / "systemd" / "vllm-spec.service"
# A user without a home, as DynamicUser makes.
USER = "64123"
# It reads this checkout, which another user owns.
READS = "--inh-caps +dac_read_search --ambient-caps +dac_read_search"


def directives() -> dict[str, str]:
    """Returns the unit's settings; each is given once."""
    pairs = [line.split("=", 1) for line in UNIT.read_text().splitlines() if "=" in line and not line.startswith("#")]
    assert len({name for name, _ in pairs}) == len(pairs)
    return dict(pairs)


def environment() -> dict[str, str]:
    """Returns the unit's variables, and the user's name, which systemd gives."""
    words = shlex.split(directives()["Environment"].replace("%C", "/var/cache"))
    return dict(word.split("=", 1) for word in words) | {"USER": "vllm-spec"}


def read_only(command: list[str], cache: Path) -> list[str]:
    """Returns a command that runs another as the unit does; needs root, and may unshare mounts.

    The file system is read-only but for /dev, /proc and `cache`, which is at the place of the unit's CacheDirectory.
    /tmp is new and empty; the user is neither root nor known. Signals reach the inner command: each command before it
    becomes the next.
    """
    script = f"""
        set -e
        mount -n --bind {shlex.quote(str(cache.parent))} /var/cache
        mount -n -o remount,bind,ro /
        mount -n -t tmpfs tmpfs /tmp
        exec setpriv --reuid {USER} --regid {USER} --clear-groups --no-new-privs {READS} env "$@"
    """
    pairs = [f"{name}={value}" for name, value in environment().items()]
    return ["unshare", "--mount", "--propagation", "private", "bash", "-c", script, "bash", *pairs, *command]
