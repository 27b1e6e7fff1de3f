"""The operator's switch: reads plugin.yaml again when it changes, for what may change while a server runs.

Each engine core reads the file itself (docs/draft_length.md says why).
"""

import logging
import time
from pathlib import Path
from typing import Any

from vllm_spec_plugin.config import ConfigError, PluginConfig, load_config
from vllm_spec_plugin.schema.errors import show_reason, show_source

logger = logging.getLogger("vllm.vllm_spec_plugin")

# Seconds between two looks at the file; and from its last change until it is read: its writer may not have finished.
_LOOK, _SETTLED = 1.0, 1.0


class OperatorSwitch:
    """Follows the section `switch` of a file; a damaged file changes nothing.

    Attributes:
        max_tokens: maximum draft tokens per request and step; 0 is off.
    """

    def __init__(self, config: PluginConfig, source: str) -> None:
        """Reads the file, which may have changed since the server was started.

        Args:
            config: what is served.
            source: name of its file; without such a file nothing changes at run time.
        """
        self._path, self._shown = Path(source), show_source(source)
        self._most, self.max_tokens = config.draft_length.tokens, config.max_draft_tokens
        self._is_file, self._next_look = self._path.is_file(), 0.0
        self._read: tuple[int, int, int] | None = (0, 0, 0)
        # The other keys as the file had them first, and those that differed at the last reading.
        self._served: dict[str, Any] = {}
        self._differing: list[str] = []
        if self.max_tokens < self._most:
            self._log()
        self.look(0.0)

    def look(self, now: float) -> bool:
        """Reads the file if it has changed, at most once a second; returns whether `max_tokens` has changed.

        Args:
            now: time in seconds, of any clock.
        """
        if now < self._next_look or not self._is_file:
            return False
        self._next_look = now + _LOOK
        try:
            found = self._path.stat()
        except OSError:
            version = None
        else:
            version = found.st_mtime_ns, found.st_size, found.st_ino
            if version != self._read and 0 <= time.time() - found.st_mtime < _SETTLED:
                return False
        if version == self._read:
            return False
        self._read, before = version, self.max_tokens
        self._take()
        if self.max_tokens == before:
            return False
        self._log()
        return True

    def _take(self) -> None:
        """Reads the file; logs a warning if it is damaged, and a note if it has changes that take a restart."""
        try:
            config = load_config(self._path)
        except Exception as error:  # validators of other distributions may raise anything
            lines = str(error).splitlines() if isinstance(error, ConfigError) else [show_reason(error)]
            text = " ".join(line.strip() for line in lines)
            logger.warning("changed file not used, the setting stays (%s): %s", self._setting, text)
            return
        own = config.switch.max_tokens
        self.max_tokens = self._most if own is None else min(own, self._most)
        keys = _other_keys(config)
        self._served = served = self._served or keys
        differing = sorted(key for key in served.keys() | keys if served.get(key) != keys.get(key))
        if differing and differing != self._differing:
            logger.warning("%s: changed, but used after a restart only: %s", self._shown, ", ".join(differing))
        self._differing = differing

    def _log(self) -> None:
        logger.info("%s: %s from now on, by the section switch", self._shown, self._setting)

    @property
    def _setting(self) -> str:
        if not self.max_tokens:
            return "drafting is off"
        return f"drafting is on, with up to {self.max_tokens} draft tokens"


def _other_keys(config: PluginConfig) -> dict[str, Any]:
    """Returns the values of a configuration by dotted key, without the section `switch`."""
    sections = config.model_dump(exclude={"switch"})
    found = {name: value for name, value in sections.items() if not isinstance(value, dict)}
    for name, section in sections.items():
        if isinstance(section, dict):
            found |= {f"{name}.{key}": value for key, value in section.items()}
    return found
