"""Options of requests for their drafts."""

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
        ({"other": "of another plugin", "specular": 1, 1: "no text", ("spec",): 3}, RequestOptions()),
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
    ("given", "max_tokens"),
    [(None, 2), ({"spec_method": "ngram"}, 2), ({"spec": "on"}, None), ({"spec_tokens": 8}, 8), ({"spec": "off"}, 0)],
)
def test_the_servers_default_is_used_where_a_request_states_nothing_itself(given, max_tokens):
    assert read_options(given, default=2).max_tokens == max_tokens
    assert read_options(given, default=0).max_tokens == (0 if max_tokens == 2 else max_tokens)


@pytest.mark.parametrize(
    ("given", "key", "words"),
    [
        *(({"spec": value}, "spec", "on or off") for value in ("maybe", True, np.zeros(2))),
        *(({"spec_tokens": value}, "spec_tokens", "from 1 to 8") for value in (9, 2.0, True, [4])),
        *(({"spec_method": value}, "spec_method", "ngram, draft_model") for value in ("draftmodel", np.zeros(2), 3)),
        ({"spec_method": "draftmodel"}, "spec_method", "did you mean draft_model"),
        ({"spec_mode": "x"}, "spec_mode", "spec, spec_tokens, spec_method"),
        ({"spec_prediction": "a"}, "spec_prediction", "the server does not draft from predictions"),
        ({"spec": "off", "spec_tokens": 2}, "spec", "together with spec_tokens"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_key_and_what_is_allowed(given, key, words):
    with pytest.raises(ValueError, match=rf"^vllm_xargs\.{key}: .*allowed: ") as caught:
        check_options(given, 8, METHODS)
    assert re.search(words, str(caught.value))


def test_a_request_without_drafts_may_have_a_prediction():
    for given in ({"spec": "off", "spec_prediction": API}, {"spec_prediction": [1, 2]}):
        check_options(given, 8, METHODS, takes_predictions=True)


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        (RequestOptions(), {"ngram"}),
        (RequestOptions(has_prediction=True), {"ngram", "prediction"}),
        (RequestOptions(method="ngram", has_prediction=True), {"ngram"}),
        (RequestOptions(method="prediction"), set()),
        (read_options({"spec_tokens": 2}), {"ngram"}),
        (read_options({"spec_tokens": 2}, has_grammar=True), {"ngram", "grammar"}),
        (read_options({"spec_method": "ngram"}, has_grammar=True), {"ngram"}),
    ],
)
def test_predictions_and_grammars_are_drafted_from_where_a_request_has_one(options, allowed):
    methods = ("ngram", "prediction", "grammar")
    sections = {method: parse_config({"proposer": {"method": method}}, "a").proposers[0] for method in methods}
    assert {method for method, section in sections.items() if options.allows(section)} == allowed
