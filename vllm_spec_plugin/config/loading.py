"""Reading and checking a plugin.yaml."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from vllm_spec_plugin.config.former import without_former
from vllm_spec_plugin.config.plugin import PluginConfig, model_for
from vllm_spec_plugin.proposers.registry import CASCADE, BrokenProposerError, kinds_for
from vllm_spec_plugin.schema.errors import Mistake, config_error, show, show_reason, show_source
from vllm_spec_plugin.schema.mistakes import mistakes_in
from vllm_spec_plugin.schema.safe_yaml import MAX_BYTES, decode, parse_text, read_text

logger = logging.getLogger("vllm.vllm_spec_plugin")


def parse_config(data: object, source: str) -> PluginConfig:
    """Checks a configuration that has been read already.

    Args:
        data: nested dicts, as from YAML or JSON.
        source: its name in messages.

    Raises:
        ConfigError: lists every mistake.
    """
    config, mistakes = _check(data, show_source(source))
    if config is None:
        raise config_error(show_source(source), mistakes)
    return config


def load_config(path: str | os.PathLike[str]) -> PluginConfig:
    """Reads and checks a configuration file.

    A model's relative path becomes absolute where it names a folder beside the file.

    Raises:
        ConfigError: the file cannot be read or is wrong; lists every mistake.
    """
    source = show_source(str(path))
    return _load(read_text(Path(path), source), source, Path(path).parent)


def load_stream(stream: BinaryIO, source: str) -> PluginConfig:
    """Reads and checks a stream; models' relative paths are resolved in the working directory.

    Raises:
        ConfigError: lists every mistake.
    """
    return _load(decode(stream.read(MAX_BYTES + 1), source), source, Path())


def _load(text: str, source: str, folder: Path) -> PluginConfig:
    document = parse_text(text, source)
    config, mistakes = _check(document.data, source)
    if config is None or document.mistakes:
        raise config_error(source, document.mistakes + mistakes)
    # Every process finds the models, wherever it runs.
    sections = {"proposer": config.proposer, "draft_length": config.draft_length}
    return config.model_copy(update={name: section.resolved(folder) for name, section in sections.items()})


def _check(data: object, source: str) -> tuple[PluginConfig | None, list[Mistake]]:
    if not isinstance(data, dict):
        given = "it is empty" if data is None else f"got {show(data)}"
        keys = ", ".join(PluginConfig.model_fields)
        return None, [Mistake("", f"{given}; allowed: a YAML mapping with the keys {keys} (proposer is required)")]
    data, notes = without_former(data)
    for note in notes:
        logger.warning("%s: %s: %s", source, note.key, note.text)
    methods = _methods(data)
    try:
        model = model_for(kinds_for(methods.values()))
    except BrokenProposerError as error:
        key = next(key for key, method in methods.items() if method == error.method)
        return None, [Mistake(key, f"{error}; allowed: another method")]
    try:
        return model.model_validate(data), []
    except ValidationError:
        return None, mistakes_in(data, model)
    except Exception as error:
        if model is PluginConfig:
            raise
        # A validator of another distribution failed.
        return None, [Mistake("proposer", f"checking it failed: {type(error).__name__}: {show_reason(error)}")]


def _methods(data: Mapping[Any, Any]) -> dict[str, object]:
    """The value of each `method`, by its dotted key; None where it is missing."""
    section = data.get("proposer")
    if not isinstance(section, Mapping):
        return {"proposer": None}
    methods = {"proposer.method": section.get("method")}
    members = section.get("proposers")
    if methods["proposer.method"] == CASCADE and isinstance(members, list | tuple):
        for i, member in enumerate(members):
            methods[f"proposer.proposers[{i}].method"] = member.get("method") if isinstance(member, Mapping) else None
    return methods
