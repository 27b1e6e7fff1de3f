"""A client that measures, in a process of its own."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtests.acceptance.child import child, last_line
from loadtests.acceptance.compare.figures import Tpot


class ClientError(RuntimeError):
    """A client failed; str() shows the end of its output."""


def measured_by(
    name: str,
    command: Sequence[str],
    result: Path,
    log: Path,
    read: Callable[[Mapping[str, Any]], Tpot],
    environment: Mapping[str, str] | None = None,
) -> Tpot:
    """Runs a client to its end, in a session of its own.

    Where Linux shares cores among sessions (`sched_autogroup_enabled`), a client in the session of a busy program reads
    a whole answer when it is over, and takes its tokens for simultaneous.

    Args:
        name: of the client, for messages.
        command: its command line.
        result: JSON file that it writes; removed before.
        log: file for its output.
        read: makes figures of what is in that file.
        environment: all of its variables; None is this process's.

    Raises:
        ClientError: it wrote no result, or none that can be read.
    """
    result.unlink(missing_ok=True)
    with child(command, log, environment) as process:
        status = process.wait()
    try:
        return read(json.loads(result.read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ClientError(
            f"{name} ended with {status} and no result ({error!r}); log: {log}; its last line: {last_line(log)}"
        ) from None
