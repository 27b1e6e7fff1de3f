"""Fields that vLLM's verification would serve wrongly are refused where vLLM verifies, and nowhere else."""

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import SamplingParams

from tests.parameters.fields import FIELDS, Verdict
from vllm_spec_plugin.compat import frontend as compat
from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.register import frontend, modes

MODES = {name: mode for name, mode in vars(modes).items() if isinstance(mode, modes.DraftingMode)}
VALUES = {"logit_bias": {1: 2.0}, "logprob_token_ids": [1, 2], "min_p": 0.5}
REFUSED = [name for name, field in FIELDS.items() if field.by_vllm == Verdict.REFUSED]


def validate(mode, **params):
    """Validates a request as vLLM does before the engine gets it."""
    config = parse_config({"proposer": {"method": "suffix"}}, "a.yaml")
    speculative: Any = SimpleNamespace(num_speculative_tokens=4)
    frontend.attach(speculative, config, vllm_verifies=mode.vllm_verifies)
    checked = compat._checked(frontend.is_ours, frontend._vllm_verifies, frontend._check_request)
    stock = getattr(SamplingParams._validate_spec_decode, "__wrapped__", SamplingParams._validate_spec_decode)
    checked(stock)(SamplingParams(**params), speculative)


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("name", REFUSED)
def test_each_way_refuses_what_the_table_says(mode, name):
    if FIELDS[name].where(vllm_verifies=mode.vllm_verifies) == Verdict.SERVED:
        validate(mode, **{name: VALUES[name]})
        return
    with pytest.raises(VLLMValidationError, match=name):
        validate(mode, **{name: VALUES[name]})


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_ordinary_requests_and_those_without_drafts_are_served(mode):
    validate(mode, logprobs=2, n=2, temperature=1.0)
    validate(mode, extra_args={"spec": "off"})


def test_the_message_names_the_parameter_the_value_and_what_is_allowed():
    with pytest.raises(VLLMValidationError) as refusal:
        validate(modes.NATIVE, logprob_token_ids=[7, 9], extra_args={"spec": "off"})
    for words in ("logprob_token_ids", "2 token ids", "allowed: logprobs"):
        assert words in str(refusal.value)
