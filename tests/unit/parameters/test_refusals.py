"""Fields that vLLM's verification would serve wrongly are refused where vLLM verifies, and nowhere else."""

from types import SimpleNamespace
from typing import Any

import pytest
from vllm import envs
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import SamplingParams

from tests.parameters.fields import FIELDS, Verdict
from vllm_spec_plugin.compat import frontend as compat
from vllm_spec_plugin.compat.v2_limits import check_fits, refusing
from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.gate.ways import Way
from vllm_spec_plugin.register import frontend, modes

V2_LIMITS: dict[str, Any] = {
    "allowed_token_ids": ({}, list(range(1024)), list(range(1025))),
    "stop_token_ids": ({"min_tokens": 1}, list(range(128)), list(range(129))),
    "bad_words": ({}, ["a"] * 3, ["a"] * 4),
}
MODES = {name: mode for name, mode in vars(modes).items() if isinstance(mode, modes.DraftingMode)}
VALUES = {"logit_bias": {1: 2.0}, "logprob_token_ids": [1, 2], "min_p": 0.5}
REFUSED = [name for name, field in FIELDS.items() if field.by_vllm == Verdict.REFUSED]


def validate(mode, is_v2=False, **params):
    """Validates a request as vLLM does before the engine gets it."""
    config = parse_config({"proposer": {"method": "suffix"}}, "a.yaml")
    speculative: Any = SimpleNamespace(num_speculative_tokens=4)
    refuses = mode.vllm_verifies and not is_v2
    frontend.attach(speculative, config, vllm_verifies=mode.vllm_verifies, vllm_refuses=refuses)
    checked = compat._checked(frontend.is_ours, frontend._vllm_refuses, frontend._check_request)
    stock = getattr(SamplingParams._validate_spec_decode, "__wrapped__", SamplingParams._validate_spec_decode)
    checked(stock)(SamplingParams(**params), speculative)


@pytest.mark.parametrize("is_v2", [False, True])
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("name", REFUSED)
def test_each_way_refuses_what_the_table_says(mode, name, is_v2):
    way = Way.OWN if not mode.vllm_verifies else Way.VLLM_V2 if is_v2 else Way.VLLM_V1
    if FIELDS[name].where(way) == Verdict.SERVED:
        validate(mode, is_v2, **{name: VALUES[name]})
        return
    with pytest.raises(VLLMValidationError, match=name):
        validate(mode, is_v2, **{name: VALUES[name]})


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_ordinary_requests_and_those_without_drafts_are_served(mode):
    validate(mode, logprobs=2, n=2, temperature=1.0)
    validate(mode, extra_args={"spec": "off"})


def test_the_message_names_the_parameter_the_value_and_what_is_allowed():
    with pytest.raises(VLLMValidationError) as refusal:
        validate(modes.NATIVE, logprob_token_ids=[7, 9], extra_args={"spec": "off"})
    for words in ("logprob_token_ids", "2 token ids", "allowed: logprobs"):
        assert words in str(refusal.value)


@pytest.mark.parametrize("name", V2_LIMITS)
def test_more_than_the_v2_runner_has_room_for_is_refused(name, monkeypatch):
    """vLLM's worker would raise; here three words of two tokens each are as many as it takes."""
    monkeypatch.setattr(envs, "VLLM_MAX_BAD_WORDS_TOTAL_TOKENS", 6)
    others, most, more = V2_LIMITS[name]
    fits, not_fits = (SamplingParams(**others, **{name: value}) for value in (most, more))
    for params in (fits, not_fits):
        # As `update_from_tokenizer` does, which needs a tokenizer.
        params._bad_words_token_ids = [[1, 2]] * (
            len(more if params is not_fits else most) if name == "bad_words" else 0
        )
    check_fits(fits)
    with pytest.raises(VLLMValidationError, match=name):
        check_fits(not_fits)


@pytest.mark.parametrize(("on_v2", "ours"), [(True, True), (True, False), (False, True)])
def test_room_matters_on_our_servers_with_the_v2_runner(on_v2, ours):
    request = SimpleNamespace(sampling_params=SamplingParams(allowed_token_ids=list(range(1025))))
    config = SimpleNamespace(use_v2_model_runner=on_v2, speculative_config=None)
    process = refusing(lambda _: ours)(lambda self: request)
    if on_v2 and ours:
        with pytest.raises(VLLMValidationError, match="1025 tokens"):
            process(SimpleNamespace(vllm_config=config))
    else:
        assert process(SimpleNamespace(vllm_config=config)) is request
