"""What the test is told."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console


@dataclass(frozen=True)
class Settings:
    """Of all parts.

    Attributes:
        config: the plugin.yaml that is served.
        users: most users of a course.
        seconds: of a course.
        chaos_seconds: of the chaos.
        out: folder for everything that is written.
        console: where progress is shown.
    """

    config: Path
    users: int
    seconds: float
    chaos_seconds: float
    out: Path
    console: Console
