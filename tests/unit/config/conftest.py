"""Files that are read."""

from pathlib import Path
from typing import Any

import pytest

from vllm_spec_plugin.config import ConfigError, load_config


@pytest.fixture
def written(tmp_path: Path) -> Any:
    """Writes a file and gives what load_config says of it, less the path."""

    def message(content: str | bytes) -> str:
        path = tmp_path / "plugin.yaml"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        with pytest.raises(ConfigError) as caught:
            load_config(path)
        assert str(caught.value).startswith(f"{path}: ")
        return str(caught.value).removeprefix(f"{path}: ")

    return message
