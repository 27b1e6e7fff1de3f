"""Every sampling parameter means the same with speculation as without."""

import json
import re
from typing import Any

import pytest

from tests.engine import texts
from tests.engine.arms import LOOKUP, MEDUSA_TREE, Arms, Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.jobs import CertifyRequest, Job, JobOutput, JobResult
from tests.engine.test_native import V2
from tests.fixed_length import STOCK_DRAFT_MODEL, native
from tests.parameters.fields import FIELDS, Verdict
from tests.parameters.values import values
from vllm_spec_plugin.gate.scopes import OWN
from vllm_spec_plugin.gate.ways import Way

pytestmark = pytest.mark.engine

PLAIN = Engine()
NUM_TOKENS = 32


SAMPLED_DRAFT_MODEL = json.dumps(json.loads(STOCK_DRAFT_MODEL) | {"draft_sample_method": "probabilistic"})
NATIVE = native(STOCK_DRAFT_MODEL)
ON_V2: dict[str, Any] = {"runner": "v2", "max_num_seqs": 48, "max_num_batched_tokens": 256, "num_blocks": 384}
ENGINES = {
    "lookup": Engine(config=LOOKUP),
    "medusa_tree": Engine(config=MEDUSA_TREE),
    "native": Engine(config=NATIVE, random_lengths=True),
}
# Of each way to draft one; the first two verify themselves.
WAYS = ENGINES | {
    "native_sampled": Engine(config=native(SAMPLED_DRAFT_MODEL), random_lengths=True),
    "suffix_on_v2": Engine(config=V2["suffix"], **ON_V2),
    "medusa_on_v2": Engine(config=V2["medusa"], **ON_V2),
    "native_on_v2": Engine(config=NATIVE, **ON_V2),
}
WAYS_OF = {
    "lookup": Way.TOKEN_ONLY_V1,
    "medusa_tree": Way.OWN,
    **dict.fromkeys(("native", "native_sampled"), Way.VLLM_V1),
    **{"suffix_on_v2": Way.TOKEN_ONLY, "medusa_on_v2": Way.HEADS, "native_on_v2": Way.VLLM_V2},
}


FULL = {name: pytest.param(name, marks=pytest.mark.full) for name in ENGINES}
# For what is computed of each node of a tree.
with_trees = pytest.mark.parametrize(
    "speculating", ["lookup", "medusa_tree", FULL["native"]], indirect=True, scope="module"
)


@pytest.fixture(scope="module", params=["lookup", FULL["medusa_tree"], FULL["native"]])
def speculating(request: pytest.FixtureRequest) -> Engine:
    """Chains, trees, and one of vLLM's own drafters."""
    return ENGINES[request.param]


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[Tokens]:
    """Texts whose continuations are drafted."""
    return [*texts.repetitive(reference), *texts.sources(reference, 6, 300)[2:]]


Requests = list[tuple[Tokens, dict[str, Any]]]


def run(arms: Arms, engine: Engine, requests: Requests) -> JobResult:
    """The requests' result, at temperature 0 where nothing else is asked for."""
    fixed = {"temperature": 0.0, "max_tokens": NUM_TOKENS}
    return arms.run(engine, Job([CertifyRequest(prompt, fixed | params) for prompt, params in requests]))


def both(arms: Arms, speculating: Engine, requests: Requests) -> tuple[JobResult, JobResult]:
    """Results with and without speculation."""
    return run(arms, speculating, requests), run(arms, PLAIN, requests)


def unconstrained(arms: Arms, prompts: list[Tokens]) -> list[list[int]]:
    """Outputs without any parameter."""
    return run(arms, PLAIN, [(prompt, {"ignore_eos": True}) for prompt in prompts]).tokens()


def ends(result: JobResult) -> list[tuple[list[int], str | None, int | str | None]]:
    """Tokens and the way each output ended."""
    return [(o.token_ids, o.finish_reason, o.stop_reason) for outputs in result.outputs for o in outputs]


@with_trees
@pytest.mark.parametrize("params", [{"temperature": 0.0}, {"temperature": 0.5, "seed": 3, "top_p": 0.9}])
def test_logprobs_are_those_of_the_target_at_every_token(
    speculating: Engine, params: dict[str, Any], arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """Tolerance 1e-3; vLLM's logprobs are of the target's unprocessed logits."""
    params = params | {"logprobs": 3, "ignore_eos": True}
    result = run(arms, speculating, [(prompt, params) for prompt in prompts])
    assert min(result.accepted, result.rejected) > 10
    for prompt, tokens, outputs in zip(prompts, result.tokens(), result.outputs, strict=True):
        expected = reference.logits([*prompt, *tokens])[len(prompt) - 1 : -1].log_softmax(-1)
        given = outputs[0].logprobs
        assert given is not None
        assert len(given) == NUM_TOKENS
        for token, row, exact in zip(tokens, given, expected, strict=True):
            assert token in row
            assert len(row) in (3, 4)
            assert all(abs(logprob - float(exact[t])) < 1e-3 for t, logprob in row.items())
            assert max(row.values()) == pytest.approx(float(exact.max()), abs=1e-3)


def test_prompt_logprobs_are_those_of_the_target(
    speculating: Engine, arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """Tolerance 1e-3."""
    result = run(arms, speculating, [(prompt, {"prompt_logprobs": 1}) for prompt in prompts])
    for prompt, given in zip(prompts, result.prompt_logprobs, strict=True):
        expected = reference.logits(prompt).log_softmax(-1)
        assert given is not None
        assert len(given) == len(prompt)
        for token, row, exact in zip(prompt[1:], given[1:], expected, strict=False):
            assert row is not None
            assert row[token] == pytest.approx(float(exact[token]), abs=1e-3)


@pytest.mark.parametrize(
    "name", [n if WAYS_OF[n] in OWN.ways else pytest.param(n, marks=pytest.mark.full) for n in WAYS]
)
def test_each_served_field_means_the_same_at_temperature_0(name: str, arms: Arms, reference: Reference) -> None:
    """All fields side by side, each with logprobs too, of outputs with drafts accepted and rejected.

    Logprobs have a tolerance of 1e-3.
    """
    engine, prompts = WAYS[name], texts.repetitive(reference)
    plain = Engine(**ON_V2) if engine.runner == "v2" else PLAIN
    fields = [f for f, found in FIELDS.items() if found.where(WAYS_OF[name]) == Verdict.SERVED]
    requests: Requests = []
    for prompt, tokens in zip(prompts, unconstrained(arms, prompts), strict=True):
        words = [reference.tokenizer.decode([token]) for token in tokens]
        for number, params in enumerate(values(tokens, words, fields)):
            usual = {"temperature": 0.0, "max_tokens": 24, "logprobs": number % 3}
            requests.append((prompt, usual | params))
    # Without speculation V1 gives the likeliest tokens to no request beside one with given tokens.
    given, others = ([r for r in requests if ("logprob_token_ids" in r[1]) == has] for has in (True, False))
    requests = [*given, *others]
    result, *alone = run(arms, engine, requests), *(run(arms, plain, each) for each in (given, others) if each)
    assert ends(result) == [end for each in alone for end in ends(each)]
    assert min(result.accepted, result.rejected) > 30
    expected = [outputs for each in alone for outputs in each.outputs]
    for ours, theirs in zip(result.outputs, expected, strict=True):
        rows = zip(ours[0].logprobs or [], theirs[0].logprobs or [], strict=True)
        assert all(one == pytest.approx(other, abs=1e-3) for one, other in rows)
    of_prompts = [row for each in alone for row in each.prompt_logprobs]
    for one, other in zip(result.prompt_logprobs, of_prompts, strict=True):
        assert (one is None) == (other is None)
        pairs = zip((one or [])[1:], (other or [])[1:], strict=True)
        assert all(row == pytest.approx(exact, abs=1e-3) for row, exact in pairs)


def bad_words_of(reference: Reference, tokens: list[int]) -> list[list[int]]:
    """A token and a pair of tokens of the output that are tokenised the same by themselves."""
    found = []
    for length in (1, 2):
        pieces = [tokens[i : i + length] for i in range(1, len(tokens) - length + 1)]
        texts = [reference.tokenizer.decode(piece) for piece in pieces]
        # vLLM strips bad words, and also excludes them with a space before.
        sound = [p for p, t in zip(pieces, texts, strict=True) if t == t.strip() and reference.encode(t) == p]
        found += sound[:1]
    return found


def test_bad_words_are_never_output(
    speculating: Engine, arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """One of one token and one of two, both of which the target would output."""
    full = unconstrained(arms, prompts)
    words = [bad_words_of(reference, tokens) for tokens in full]
    assert sum(len(banned) == 2 for banned in words) >= 3
    requests: Requests = [
        (prompt, {"bad_words": [reference.tokenizer.decode(word) for word in banned], "ignore_eos": True})
        for prompt, banned in zip(prompts, words, strict=True)
        if banned
    ]
    result, plain = both(arms, speculating, requests)
    assert result.tokens() == plain.tokens()
    assert result.accepted > 10
    for tokens, banned in zip(result.tokens(), filter(None, words), strict=True):
        for word in banned:
            assert not any(tokens[i : i + len(word)] == word for i in range(len(tokens)))
    assert not any(tokens in full for tokens in result.tokens())


def test_only_allowed_tokens_are_output(speculating: Engine, arms: Arms, prompts: list[Tokens]) -> None:
    """Half of the tokens that the target would output."""
    allowed = [sorted(set(tokens))[::2] for tokens in unconstrained(arms, prompts)]
    requests = [
        (prompt, {"allowed_token_ids": ids, "ignore_eos": True}) for prompt, ids in zip(prompts, allowed, strict=True)
    ]
    result, plain = both(arms, speculating, requests)
    assert result.tokens() == plain.tokens()
    assert result.accepted > 20
    assert all(set(tokens) <= set(ids) for tokens, ids in zip(result.tokens(), allowed, strict=True))


@with_trees
def test_min_tokens_holds_stop_tokens_back(speculating: Engine, arms: Arms, prompts: list[Tokens]) -> None:
    """The stop token is one that the target would output early."""
    stops = [tokens[3] for tokens in unconstrained(arms, prompts)]
    requests: Requests = [
        (prompt, {"min_tokens": least, "stop_token_ids": [stop]})
        for prompt, stop in zip(prompts, stops, strict=True)
        for least in (6, 7, 8, 20)
    ]
    result, plain = both(arms, speculating, requests)
    assert ends(result) == ends(plain)
    assert result.accepted > 20
    for (_, params), tokens in zip(requests, result.tokens(), strict=True):
        assert len(tokens) >= params["min_tokens"]
        assert params["stop_token_ids"][0] not in tokens[: params["min_tokens"]]


def test_output_has_max_tokens_tokens_within_accepted_drafts(
    speculating: Engine, arms: Arms, prompts: list[Tokens]
) -> None:
    """1 to 7 tokens, at temperature 0 and 0.5."""
    requests = [
        (prompt, {"max_tokens": most, "ignore_eos": True, "temperature": temperature})
        for prompt in prompts
        for most in range(1, 8)
        for temperature in (0.0, 0.5)
    ]
    result, plain = both(arms, speculating, requests)
    assert [len(tokens) for tokens in result.tokens()] == [params["max_tokens"] for _, params in requests]
    assert result.tokens()[::2] == plain.tokens()[::2]
    assert result.accepted > 10


def test_output_goes_on_to_the_last_token_of_the_context(
    speculating: Engine, arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """Prompts that leave 1 to 12 tokens, beside others that have room."""
    text = (prompts[0] + prompts[1] + prompts[2]) * 10
    longest = speculating.max_model_len
    requests: Requests = [
        (text[-(longest - room) :], {"max_tokens": None, "ignore_eos": True}) for room in range(1, 13)
    ]
    requests += [(prompt, {"ignore_eos": True}) for prompt in prompts]
    result, plain = both(arms, speculating, requests)
    assert [len(tokens) for tokens in result.tokens()[:12]] == list(range(1, 13))
    assert result.tokens() == plain.tokens()
    assert result.accepted > 20


STRUCTURES: dict[str, dict[str, Any]] = {
    "choice": {"choice": ["self.name", "self.value", "self.valuation"]},
    "regex": {"regex": r"(self\.(name|value|size) = [a-z]{1,4}\n){2,4}"},
    "json": {
        "json": {
            "type": "object",
            "properties": {"name": {"enum": ["self", "value"]}, "size": {"type": "boolean"}},
            "required": ["name", "size"],
            "additionalProperties": False,
        }
    },
}


@with_trees
def test_structured_output_has_its_structure(speculating: Engine, arms: Arms, prompts: list[Tokens]) -> None:
    """All structures in one batch, at temperature 0 and 1; at 0 outputs are also those without speculation."""
    kinds = [(kind, temperature) for kind in STRUCTURES for temperature in (0.0, 1.0)]
    requests: Requests = [
        (prompt, {"structured_outputs": STRUCTURES[kind], "temperature": temperature, "max_tokens": 200})
        for prompt in prompts
        for kind, temperature in kinds
    ]
    requests += [(prompt, {"ignore_eos": True}) for prompt in prompts]
    result, plain = both(arms, speculating, requests)
    greedy = [i for i, (_, params) in enumerate(requests) if not params.get("temperature")]
    assert [ends(result)[i] for i in greedy] == [ends(plain)[i] for i in greedy]
    for (kind, _), (output,) in zip(kinds * len(prompts), result.outputs, strict=False):
        assert output.finish_reason == "stop"
        assert _has_structure(kind, output)


def _has_structure(kind: str, output: JobOutput) -> bool:
    if kind == "choice":
        return output.text in STRUCTURES[kind]["choice"]
    if kind == "regex":
        return re.fullmatch(STRUCTURES[kind]["regex"], output.text) is not None
    value = json.loads(output.text)
    return set(value) == {"name", "size"} and value["name"] in ("self", "value") and isinstance(value["size"], bool)


def test_n_gives_that_many_outputs(speculating: Engine, arms: Arms, prompts: list[Tokens]) -> None:
    """Different ones, the same again with the same seed; with vLLM's verification these depend on the drafts."""
    params = {"n": 4, "temperature": 0.6, "seed": 11, "ignore_eos": True}
    result = run(arms, speculating, [(prompt, params) for prompt in prompts])
    again = run(arms, speculating, [(prompt, params) for prompt in reversed(prompts)])
    for outputs, repeated in zip(result.outputs, reversed(again.outputs), strict=True):
        tokens = [tuple(o.token_ids) for o in outputs]
        assert tokens == [tuple(o.token_ids) for o in repeated] or speculating.config == NATIVE
        assert len(set(tokens)) == 4
        assert all(len(t) == NUM_TOKENS for t in tokens)
    assert result.accepted > 10
