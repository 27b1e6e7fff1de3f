"""Drafts from grammars leave structured outputs as they are, whatever else a request asks for or meets."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.engine import reasoning, texts
from tests.engine.arms import GRAMMAR, Arms, Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.greedy import assert_same_token_ids
from tests.engine.jobs import CertifyRequest, Job, JobResult
from tests.engine.storm import Outcome, Storm
from tests.engine.test_grammar_drafts import KINDS, LARK, STRUCTURES, assert_sound, backend, without_drafts
from tests.engine.test_storm import TIGHTEST, assert_as_without_drafts

pytestmark = pytest.mark.engine

NUM_REQUESTS, NUM_TOKENS = 120, 36  # of the storm
ENGINES = {name: Engine(config=GRAMMAR, check=True, options=backend(name)) for name in KINDS}
SCHEMA = {
    "type": "object",
    "properties": {"name_of_the_value": {"enum": ["self.value", "other"]}, "is_an_attribute": {"type": "boolean"}},
    "required": ["name_of_the_value", "is_an_attribute"],
    "additionalProperties": False,
}
# Texts that the target often writes: `triggered` and `old` need the beginning of a tag in free text.
TAG = {"begin": " the value ", "content": {"type": "json_schema", "json_schema": SCHEMA}, "end": " of the class"}
OTHER = {"begin": "self.value_of(", "content": {"type": "regex", "pattern": "(first|second)_value"}, "end": ")\n"}
LIST = {"type": "tags_with_separator", "tags": [TAG, OTHER], "separator": " and then", "at_least_one": True}
FORMATS: dict[str, dict[str, Any]] = {
    "triggered": {"type": "triggered_tags", "triggers": [" the", "self."], "tags": [TAG, OTHER]},
    "list": LIST,
    "sequence": {"type": "sequence", "elements": [{"type": "const_string", "value": "return "}, OTHER, LIST]},
}
# The older form, which is all that guidance takes.
STRUCTURE = {"begin": TAG["begin"], "schema": SCHEMA, "end": TAG["end"]}
OLD: dict[str, Any] = {"structures": [STRUCTURE], "triggers": [" the"]}
TAGS = {name: {"type": "structural_tag", "format": each} for name, each in FORMATS.items()} | {"old": OLD}
# What ends or changes outputs beside their grammar. Where no token is left to a request, vLLM ends it with an error.
PARAMS: dict[str, dict[str, Any]] = {
    "min_tokens": {"min_tokens": 60},
    "stop": {"stop": ["value", "e\n"]},
    "stop with its text": {"stop": ["valu"], "include_stop_str_in_output": True},
    "stop tokens": {"stop_token_ids": [63, 994]},
    "max_tokens": {"max_tokens": 9},
    "n": {"n": 3, "temperature": 1.0},
    "logprobs": {"logprobs": 3},
    "penalties": {"repetition_penalty": 1.3, "frequency_penalty": 0.4},
    "bad words": {"bad_words": ["self", "first", " the"]},
    "ignore_eos": {"ignore_eos": True},
}


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[Tokens]:
    return texts.sources(reference, 6, 120)


def requests_of(
    prompts: Sequence[Tokens], structures: Sequence[dict[str, Any]], params: Sequence[dict[str, Any]]
) -> list[CertifyRequest]:
    """Each structure with all parameters, greedy and seeded; prompts come round about."""
    found: list[CertifyRequest] = []
    endless = itertools.cycle(prompts)
    for structure in structures:
        for more in params:
            for law in ({"temperature": 0.0}, {"temperature": 1.0, "seed": 1000 + len(found)}):
                seed = {"seed": 1000 + len(found)} if "n" in more else {}
                given = {"max_tokens": 64, "structured_outputs": structure} | law | more | seed
                found.append(CertifyRequest(next(endless), given))
    return found


def structures_of(name: str) -> list[dict[str, Any]]:
    found = {kind: STRUCTURES[kind] for kind in KINDS[name]}
    return list((found | {"ebnf": {"grammar": LARK}} if name == "guidance" else found).values())


def assert_same_outputs(
    reference: Reference, requests: list[CertifyRequest], result: JobResult, plain: JobResult
) -> None:
    """Every output of each request is the same, with its end; greedy tokens up to ties."""
    assert_sound(result)
    greedy = [i for i, request in enumerate(requests) if not request.params["temperature"]]
    assert_same_token_ids(
        reference,
        [requests[i].prompt for i in greedy],
        [result.tokens()[i] for i in greedy],
        [plain.tokens()[i] for i in greedy],
    )
    for i, (request, outputs, expected) in enumerate(zip(requests, result.outputs, plain.outputs, strict=True)):
        assert len(outputs) == len(expected)
        for ours, theirs in zip(outputs, expected, strict=True):
            if i in greedy and ours.token_ids != theirs.token_ids:
                continue
            found, wanted = ((o.token_ids, o.text, o.finish_reason, o.stop_reason) for o in (ours, theirs))
            assert found == wanted, request.params
            assert (ours.logprobs is None) == ("logprobs" not in request.params)
            for one, other in zip(ours.logprobs or (), theirs.logprobs or (), strict=True):
                assert one == pytest.approx(other, abs=1e-3)


def print_accepted(name: str, result: JobResult) -> None:
    """Prints how much of the outputs was drafted."""
    num_tokens = sum(len(output.token_ids) for outputs in result.outputs for output in outputs)
    print(f"{name}: {result.accepted} of {result.accepted + result.rejected} accepted, {num_tokens} output tokens")


@pytest.mark.parametrize(("name", "tags"), [("xgrammar", tuple(TAGS)), ("guidance", ("old",) * 4)])
def test_structural_tags(
    name: str, tags: tuple[str, ...], arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """The target writes free text up to a trigger, and what a tag allows after it."""
    structures = [{"structural_tag": json.dumps(TAGS[tag])} for tag in tags]
    job = Job(requests_of(prompts, structures, [{}]))
    plain, result = (arms.run(ENGINES[name], each) for each in (without_drafts(job), job))
    assert_same_outputs(reference, job.requests, result, plain)
    print_accepted(name, result)
    assert plain.accepted + plain.rejected == 0
    assert result.accepted > 10


@pytest.mark.parametrize("name", KINDS)
def test_what_ends_or_changes_outputs_does_the_same(
    name: str, arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    job = Job(requests_of(prompts, structures_of(name), list(PARAMS.values())))
    plain, result = (arms.run(ENGINES[name], each) for each in (without_drafts(job), job))
    assert_same_outputs(reference, job.requests, result, plain)
    print_accepted(name, result)
    assert result.accepted > 0.2 * sum(map(len, result.tokens()))
    ends = [outputs[0].finish_reason for outputs in result.outputs]
    assert min(ends.count("stop"), ends.count("length")) > 5


def test_a_grammar_that_keeps_a_step_of_a_draft_is_noticed(
    arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    requests = requests_of(prompts, structures_of("xgrammar"), [{}])
    job, faulty = Job(requests), Job(requests, sabotage="grammar_keeps_a_step")
    plain, sound, wrong = (arms.run(ENGINES["xgrammar"], each) for each in (without_drafts(job), job, faulty))
    assert_same_outputs(reference, requests, sound, plain)
    others = sum(ours != theirs for ours, theirs in zip(wrong.tokens(), plain.tokens(), strict=True))
    assert others > len(requests) // 2


def test_drafts_begin_when_reasoning_has_ended(arms: Arms, reference: Reference, prompts: list[Tokens]) -> None:
    parser = (("reasoning_parser", "are"), ("reasoning_parser_plugin", reasoning.__file__))
    engine = Engine(config=GRAMMAR, check=True, options=(*backend("xgrammar"), *parser))
    [end] = reference.encode(" of")
    prompts = [prompt for prompt in prompts if end not in prompt]

    def with_bias(*biases: float) -> Job:
        params = [{"logit_bias": {end: bias}} for bias in biases]
        return Job(requests_of(prompts, structures_of("xgrammar"), params))

    job = with_bias(4.0, 6.0, 8.0)
    plain, result = (arms.run(engine, each) for each in (without_drafts(job), job))
    assert_same_outputs(reference, job.requests, result, plain)
    print_accepted("after reasoning", result)
    assert len({output.token_ids.index(end) for [output] in result.outputs if end in output.token_ids}) > 4
    assert result.accepted > 0.1 * sum(map(len, result.tokens()))
    endless = arms.run(engine, with_bias(-100.0))
    assert endless.accepted + endless.rejected == 0


def test_structured_requests_in_a_storm(arms: Arms, reference: Reference) -> None:
    """Preempted and resumed ones end as without drafts, and what aborted ones had is the same, too."""
    prompts = [prompt for prompt in texts.sources(reference, 32, 80) if len(prompt) > 1]
    structures = [*structures_of("xgrammar"), {"structural_tag": json.dumps(TAGS["list"])}]
    params = {"temperature": 0.0, "max_tokens": NUM_TOKENS, "ignore_eos": True}
    greedy = [
        CertifyRequest(prompt, params | {"structured_outputs": structure})
        for prompt, structure in zip(prompts, itertools.cycle(structures), strict=False)
    ]
    plain = arms.run(Engine(options=backend("xgrammar")), Job(greedy)).tokens()
    storm = Storm(prompts, NUM_REQUESTS, NUM_TOKENS, structures=tuple(structures))
    engine = Engine(config=GRAMMAR, check=True, options=backend("xgrammar"), **TIGHTEST)
    result = arms.run(engine, Job([], storm=storm))
    outcomes: list[Outcome] = result.notes["storm"]
    assert {outcome.end for outcome in outcomes} == {"finished", "aborted", "refused"}
    assert_as_without_drafts(reference, prompts, outcomes, plain)
    assert_sound(result)
    print(f"storm: {result.accepted} accepted, {result.rejected} rejected, {result.preemptions} preemptions")
    assert min(result.accepted, result.rejected) > NUM_REQUESTS
    assert result.preemptions > NUM_REQUESTS / 25
