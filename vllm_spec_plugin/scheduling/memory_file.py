"""Keeps what a policy learned in a file, for the next server of the same models, drafter, device and configuration."""

import contextlib
import hashlib
import logging
import os
import tempfile
from pathlib import Path
from time import monotonic

from pydantic import ValidationError

from vllm_spec_plugin.compat.identity import cache_folder, identity_of
from vllm_spec_plugin.compat.scheduler import VllmConfig
from vllm_spec_plugin.config import PluginConfig
from vllm_spec_plugin.policy.memory import Learned

logger = logging.getLogger("vllm.vllm_spec_plugin")

# 0 keeps nothing in servers of this environment, whatever their files say.
SWITCH = "VLLM_SPEC_MEMORY"
# Minimum seconds between two writes, while requests run and when the last one has ended: vLLM kills an engine that
# stops, so there is no later moment.
EVERY, EVERY_IDLE = 30.0, 1.0
# Maximum size of a file, and of files in the folder, of which the oldest go.
_MAX_BYTES, _MAX_FILES = 1 << 20, 64


def memory_of(vllm_config: VllmConfig, config: PluginConfig) -> "MemoryFile | None":
    """Returns the file of a server's memory; None if it keeps none."""
    memory = getattr(config.draft_length, "memory", "off")
    if memory == "off" or os.environ.get(SWITCH, "1") == "0":
        return None
    folder = cache_folder() / "memory" if memory == "on" else Path(memory)
    file = config.model_dump(mode="json", exclude={"draft_length": {"memory"}, "switch": True, "requests": True})
    return MemoryFile(folder, identity_of(vllm_config, file))


class MemoryFile:
    """One file of a folder, named by a hash of what its numbers depend on; they are numbers only.

    Nothing here fails a server: a file that cannot be read or written is one warning.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        """Names the file.

        Args:
            folder: made when the file is first written.
            identity: description of what the numbers depend on.
        """
        self.path = folder / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"
        self._is_writable, self._written = True, monotonic()

    def read(self) -> Learned | None:
        """Returns what a former server learned; None without a file, or with one that has something else."""
        try:
            with self.path.open("rb") as file:
                text = file.read(_MAX_BYTES + 1)
            if len(text) > _MAX_BYTES:
                raise ValueError(f"more than {_MAX_BYTES} bytes")
            learned = Learned.model_validate_json(text)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            logger.warning(
                "draft_length.memory: %s is not used, and will be replaced (%s); drafting begins without memory",
                self.path,
                reason,
            )
            return None
        logger.info("draft_length.memory: drafting begins with what %s says", self.path)
        return learned

    def is_due(self, *, is_busy: bool) -> bool:
        """Whether the file was not written for a while; `is_busy` is whether requests run."""
        return self._is_writable and monotonic() - self._written >= (EVERY if is_busy else EVERY_IDLE)

    def write(self, learned: Learned | None) -> None:
        """Replaces the file as a whole; None leaves it."""
        self._written = monotonic()
        if learned is None or not self._is_writable:
            return
        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".new", delete=False) as file:
                file.write(learned.model_dump_json())
            Path(file.name).replace(self.path)
            self._remove_oldest()
        except OSError as error:
            self._is_writable = False
            logger.warning(
                "draft_length.memory: cannot write %s (%s): the next start begins without it; name a writable folder, "
                "or set draft_length.memory: off",
                self.path,
                error.strerror,
            )

    def _remove_oldest(self) -> None:
        files = sorted(self.path.parent.glob("*.json"), key=lambda file: file.stat().st_mtime)
        for file in files[:-_MAX_FILES]:
            with contextlib.suppress(OSError):
                file.unlink()
