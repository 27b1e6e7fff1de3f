"""Requests of all kinds, for engines that draft and for those that do not."""

import random
from collections.abc import Sequence
from typing import Any

from tests.engine import texts
from tests.engine.arms import Arms, Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.jobs import CertifyRequest, Job, JobResult
from tests.engine.ways import settings, way, without_speculation
from tests.parameters.fields import FIELDS, Verdict
from tests.parameters.values import values
from tests.sizes import is_full

Params = dict[str, Any]
SCHEMA = {
    "type": "object",
    "properties": {
        "name_of_the_value": {"enum": ["self.value", "self.valuation", "other"]},
        "is_an_attribute": {"type": "boolean"},
        "sizes": {"type": "array", "items": {"type": "integer", "maximum": 99}, "minItems": 2, "maxItems": 3},
    },
    "required": ["name_of_the_value", "is_an_attribute", "sizes"],
    "additionalProperties": False,
}
LINES = 'root ::= line line\nline ::= "return self." name " + " name "\\n"\nname ::= "first_value" | "second_value"'
STRUCTURES: dict[str, Params] = {
    "json": {"json": SCHEMA},
    "regex": {"regex": r"(self\.(name|value) = [a-z]{1,4} + self\.default_value\n){2,3}"},
    "choice": {"choice": ["the first value of the list", "the last value of the list", "none"]},
    "ebnf": {"grammar": LINES},
}
NUM_TOKENS = 48
# A predicted token in so many is not that of the output.
CHANGED = 12
OFF = {"spec": "off"}


def greedy_answers(arms: Arms, engine: Engine, prompts: Sequence[Tokens]) -> list[list[int]]:
    """Outputs of `NUM_TOKENS` tokens without speculation."""
    params = {"temperature": 0.0, "max_tokens": NUM_TOKENS, "ignore_eos": True}
    job = Job([CertifyRequest(prompt, params) for prompt in prompts])
    return arms.run(without_speculation(engine), job).tokens()


def all_kinds(arms: Arms, reference: Reference, engine: Engine) -> list[CertifyRequest]:
    """Greedy requests with all fields that the engine's way to draft serves, mixed; on V2 some of them."""
    is_v2 = engine.runner != "v1"
    repetitive, sources = (
        texts.repetitive(reference),
        texts.sources(reference, 16 if is_v2 else 44, 80 if is_v2 else 500),
    )
    found: list[tuple[Tokens, Params]] = []
    # Triton's interpreter takes long for top-k and top-p.
    slow = {"top_k", "top_p"} if is_v2 and not is_full() else set()
    fields = [name for name, field in FIELDS.items() if field.where(way(engine)) == Verdict.SERVED and name not in slow]
    for prompt, tokens in zip(repetitive, greedy_answers(arms, engine, repetitive), strict=True):
        words = [reference.tokenizer.decode([token]) for token in tokens]
        for number, params in enumerate(values(tokens, words, fields)):
            found.append((prompt, {"max_tokens": 24, "logprobs": number % 3} | params))
        found += [(prompt, {"structured_outputs": each, "max_tokens": 80}) for each in STRUCTURES.values()]
        found += [(prompt, {"max_tokens": number, "ignore_eos": True}) for number in range(1, 8)]
        stops = [{"stop_token_ids": [tokens[i]], "min_tokens": least} for i, least in ((3, 6), (3, 20), (9, 7))]
        found += [(prompt, {"max_tokens": 32} | each) for each in stops]
    options: tuple[Params, ...] = ({}, {"spec_tokens": 2}, OFF)
    usual = {"max_tokens": NUM_TOKENS, "ignore_eos": True}
    found += [(prompt, usual | {"extra_args": options[i % 3]}) for i, prompt in enumerate(sources)]
    if any(proposer.uses_predictions for proposer in settings(engine).proposers):
        requests = [_request(prompt, usual) for prompt in sources]
        found += [(each.prompt, each.params) for each in predicted(requests, greedy_answers(arms, engine, sources))]
    if is_v2:
        chosen = random.Random(0).sample(found, len(found) if is_full() else 20)
        return [_request(prompt, params | {"max_tokens": min(24, params["max_tokens"])}) for prompt, params in chosen]
    # They leave a few tokens of the context.
    whole = sum(repetitive, ()) * 10
    found += [
        (whole[-engine.max_model_len + room :], {"max_tokens": None, "ignore_eos": True}) for room in (1, 2, 5, 12)
    ]
    random.Random(0).shuffle(found)
    return [_request(prompt, params) for prompt, params in found]


def predicted(requests: Sequence[CertifyRequest], answers: Sequence[list[int]]) -> list[CertifyRequest]:
    """The same requests: a third predict their answers with changes, a third another's, the others nothing."""
    found = []
    for i, (request, answer) in enumerate(zip(requests, answers, strict=True)):
        changed = [token if (at + i) % CHANGED else answer[0] for at, token in enumerate(answer)]
        prediction = (changed, answers[i - 1], None)[i % 3]
        extra = {} if prediction is None else {"extra_args": {"spec_prediction": prediction}}
        found.append(CertifyRequest(request.prompt, request.params | extra))
    return found


def _request(prompt: Tokens, params: Params) -> CertifyRequest:
    return CertifyRequest(prompt, {"temperature": 0.0} | params)


def seeded(requests: Sequence[CertifyRequest], *, truncates: bool = True) -> list[CertifyRequest]:
    """The same requests, sampled with seeds, some with two outputs or few likely tokens.

    Args:
        truncates: whether there are top-k and top-p, for which Triton's interpreter takes long.
    """
    laws: tuple[Params, ...] = ({}, {"n": 2}, {"temperature": 0.6})
    laws += ({"top_p": 0.9}, {"top_k": 20}) if truncates else ()
    return [
        CertifyRequest(request.prompt, request.params | {"temperature": 1.0, "seed": 1000 + i} | laws[i % len(laws)])
        for i, request in enumerate(requests)
    ]


def off(requests: Sequence[CertifyRequest]) -> list[CertifyRequest]:
    """The same requests without drafts."""
    return [CertifyRequest(request.prompt, request.params | {"extra_args": OFF}) for request in requests]


def run_plain(arms: Arms, engine: Engine, requests: Sequence[CertifyRequest]) -> JobResult:
    """Results of the engine without speculation, of the requests without what is about drafts.

    V1 gives the likeliest tokens to no request beside one with given tokens: those run by themselves.
    """
    plain = without_speculation(engine)
    bare = [CertifyRequest(each.prompt, {**each.params, "extra_args": None}) for each in requests]
    given = [i for i, each in enumerate(bare) if "logprob_token_ids" in each.params]
    others = [i for i in range(len(bare)) if i not in given]
    result = arms.run(plain, Job([bare[i] for i in others]))
    results = [(others, result)] + ([(given, arms.run(plain, Job([bare[i] for i in given])))] if given else [])
    order = {i: (each, at) for places, each in results for at, i in enumerate(places)}
    result.outputs = [order[i][0].outputs[order[i][1]] for i in range(len(bare))]
    result.prompt_logprobs = [order[i][0].prompt_logprobs[order[i][1]] for i in range(len(bare))]
    return result
