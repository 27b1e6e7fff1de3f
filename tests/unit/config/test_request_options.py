"""Tests the options of requests for their drafts."""

import re

import numpy as np
import pytest

from vllm_spec_plugin.config import parse_config
from vllm_spec_plugin.config.request_options import RequestOptions, check_options, read_options

METHODS = ("ngram", "draft_model")
API = {"prediction": {"type": "content", "content": "a"}}


@pytest.mark.parametrize(
    ("given", "meaning"),
    [
        (None, RequestOptions()),
        ({}, RequestOptions()),
        ({"other": "of another plugin", "specular": 1}, RequestOptions()),
        ({1: "no text", None: 2, ("spec",): 3}, RequestOptions()),
        ({"spec": "on"}, RequestOptions()),
        ({"spec": "off"}, RequestOptions(max_tokens=0)),
        ({"spec_tokens": 1}, RequestOptions(max_tokens=1)),
        # Servers that do not draft from it ignore it; the frontend drops it.
        ({"spec_prediction": API}, RequestOptions(has_prediction=True)),
        ({"spec": "on", "spec_tokens": 8, "spec_method": "draft_model"}, RequestOptions(8, "draft_model")),
    ],
)
def test_what_is_let_through_is_read(given, meaning):
    check_options(given, 8, METHODS)
    assert read_options(given) == meaning


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"spec": "maybe"}, "vllm_xargs.spec: got the text 'maybe'; allowed: on or off"),
        ({"spec": True}, "vllm_xargs.spec: got true; allowed: on or off"),
        ({"spec": np.zeros(2)}, "vllm_xargs.spec: got a value of type ndarray; allowed: on or off"),
        (
            {"spec_tokens": 9},
            "vllm_xargs.spec_tokens: got 9; allowed: a whole number from 1 to 8, the longest draft of this server (for "
            "none, spec: off)",
        ),
        ({"spec_tokens": 2.0}, "vllm_xargs.spec_tokens: got 2.0; allowed: a whole number from 1 to 8"),
        ({"spec_tokens": True}, "vllm_xargs.spec_tokens: got true; allowed: a whole number from 1 to 8"),
        ({"spec_tokens": [4]}, "vllm_xargs.spec_tokens: got a list; allowed: a whole number from 1 to 8"),
        (
            {"spec_method": "draftmodel"},
            "vllm_xargs.spec_method: got the text 'draftmodel'; allowed: ngram, draft_model; did you mean draft_model",
        ),
        (
            {"spec_method": np.zeros(2)},
            "vllm_xargs.spec_method: got a value of type ndarray; allowed: ngram, draft_model",
        ),
        ({"spec_method": 3}, "vllm_xargs.spec_method: got 3; allowed: ngram, draft_model"),
        ({"spec_mode": "x"}, "vllm_xargs.spec_mode: unknown key; allowed: spec, spec_tokens, spec_method"),
        ({"spec_prediction": "a"}, "vllm_xargs.spec_prediction: the server does not draft from predictions; allowed: "),
        (
            {"spec": "off", "spec_tokens": 2},
            "vllm_xargs.spec: got 'off' together with spec_tokens; allowed: off by itself, or spec_tokens without it",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(given, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        check_options(given, 8, METHODS)


def test_a_request_without_drafts_may_have_a_prediction():
    for given in ({"spec": "off", "spec_prediction": API}, {"spec_prediction": [1, 2]}):
        check_options(given, 8, METHODS, takes_predictions=True)


def test_only_requests_with_a_prediction_are_drafted_for_from_it():
    ngram, prediction = (
        parse_config({"proposer": {"method": method}}, "a").proposers[0] for method in ("ngram", "prediction")
    )
    for options, allowed in (
        (RequestOptions(), (True, False)),
        (RequestOptions(has_prediction=True), (True, True)),
        (RequestOptions(method="ngram", has_prediction=True), (True, False)),
        (RequestOptions(method="prediction"), (False, False)),
    ):
        assert (options.allows(ngram), options.allows(prediction)) == allowed


def test_only_requests_with_structured_output_are_drafted_for_from_grammars():
    suffix, grammar = (
        parse_config({"proposer": {"method": method}}, "a").proposers[0] for method in ("suffix", "grammar")
    )
    for options, allowed in (
        (read_options(None), (True, False)),
        (read_options({"spec_tokens": 2}), (True, False)),
        (read_options(None, has_grammar=True), (True, True)),
        (read_options({"spec_tokens": 2}, has_grammar=True), (True, True)),
        (read_options({"spec_method": "suffix"}, has_grammar=True), (True, False)),
    ):
        assert (options.allows(suffix), options.allows(grammar)) == allowed
