"""Sections of a plugin.yaml, and what is said of a wrong one."""

import pytest

from vllm_spec_plugin.config import ConfigError, parse_config

NGRAM = {"method": "ngram"}
DRAFT = {"method": "draft_model", "model": "org/small"}
MEDUSA = {"method": "medusa", "model": "org/heads"}
SHARED = {**NGRAM, "shared": True}
FIXED = {"proposer": NGRAM, "stream_granularity": "fixed"}
SEVEN = {"policy": "fixed", "tokens": 7}


def message_of(data: object) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(data, "spec.yaml")
    return str(caught.value)
