"""Drafts from grammars leave structured outputs as they are, with each back end of vLLM and whatever a request asks."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.engine import reasoning, texts
from tests.engine.arms import GRAMMAR, Arms, Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.greedy import assert_same_outputs
from tests.engine.jobs import CertifyRequest, Job, JobResult
from tests.engine.kinds import STRUCTURES, off
from tests.engine.test_exactness import assert_sound
from tests.engine.ways import HEADS, VLLMS_EAGLE3, cascade, on_v2, vllms
from tests.fixed_length import STOCK_DRAFT_MODEL
from tests.sizes import is_full
from vllm_spec_plugin.models import model_path

pytestmark = pytest.mark.engine

# One of the structures as Lark, which guidance takes.
LARK = 'start: line line\nline: "return self." name " + " name "\\n"\nname: "first_value" | "second_value"'
OF_BACKEND: dict[str, list[dict[str, Any]]] = {
    "xgrammar": list(STRUCTURES.values()),
    "guidance": [*(STRUCTURES[kind] for kind in ("json", "regex", "choice")), {"grammar": LARK}],
    "outlines": [STRUCTURES[kind] for kind in ("json", "regex", "choice")],
}
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
FORMATS: tuple[dict[str, Any], ...] = (
    {"type": "triggered_tags", "triggers": [" the", "self."], "tags": [TAG, OTHER]},
    LIST,
    {"type": "sequence", "elements": [{"type": "const_string", "value": "return "}, OTHER, LIST]},
)
# The older form, which is all that guidance takes.
OLD: dict[str, Any] = {
    "structures": [{"begin": TAG["begin"], "schema": SCHEMA, "end": TAG["end"]}],
    "triggers": [" the"],
}
NEW = [{"type": "structural_tag", "format": each} for each in FORMATS]
# What ends or changes outputs beside their grammar. Where no token is left to a request, vLLM ends it with an error.
PARAMS: tuple[dict[str, Any], ...] = (
    {},
    {"min_tokens": 60},
    {"stop": ["value", "e\n"]},
    {"stop": ["valu"], "include_stop_str_in_output": True},
    {"stop_token_ids": [63, 994]},
    {"max_tokens": 9},
    {"n": 3, "temperature": 1.0},
    {"logprobs": 3},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.4},
    {"bad_words": ["self", "first", " the"]},
    {"ignore_eos": True},
)


def backend(name: str, *, any_whitespace: bool = False) -> tuple[tuple[str, Any], ...]:
    settings = (("backend", name), ("disable_any_whitespace", not any_whitespace and name != "outlines"))
    return (("structured_outputs_config", settings),)


def on(name: str, **options: Any) -> Engine:
    return Engine(config=GRAMMAR, check=True, options=backend(name), **options)


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[Tokens]:
    return texts.sources(reference, 6, 120)


def requests_of(
    prompts: Sequence[Tokens], structures: Sequence[dict[str, Any]], params: Sequence[dict[str, Any]] = ({},)
) -> list[CertifyRequest]:
    """Each structure with all parameters, greedy and seeded; prompts come round about."""
    found: list[CertifyRequest] = []
    endless = itertools.cycle(prompts)
    for structure, more, temperature in itertools.product(structures, params, (0.0, 1.0)):
        law = {"temperature": temperature, "seed": 1000 + len(found)}
        found.append(CertifyRequest(next(endless), {"max_tokens": 64, "structured_outputs": structure} | law | more))
    return found


def compared(
    arms: Arms, reference: Reference, engine: Engine, requests: list[CertifyRequest], share: float
) -> JobResult:
    """Outputs are those without drafts; that share of the tokens was drafted."""
    plain, result = (arms.run(engine, Job(each)) for each in (off(requests), requests))
    assert_same_outputs(reference, requests, result, plain)
    assert_sound(result)
    assert plain.accepted + plain.rejected == 0
    assert result.accepted > share * sum(map(len, result.tokens()))
    return result


@pytest.mark.parametrize("name", OF_BACKEND)
def test_outputs_are_those_without_drafts(name: str, arms: Arms, reference: Reference, prompts: list[Tokens]) -> None:
    requests = requests_of(prompts, OF_BACKEND[name], PARAMS)
    result = compared(arms, reference, on(name), requests, 0.2)
    ends = [outputs[0].finish_reason for outputs in result.outputs]
    assert min(ends.count("stop"), ends.count("length")) > 5


@pytest.mark.parametrize(("name", "tags"), [("xgrammar", [*NEW, OLD]), ("guidance", [OLD] * 4)])
def test_structural_tags(
    name: str, tags: list[dict[str, Any]], arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """The target writes free text up to a trigger, and what a tag allows after it."""
    requests = requests_of(prompts, [{"structural_tag": json.dumps(tag)} for tag in tags])
    assert compared(arms, reference, on(name), requests, 0.0).accepted > 10


def test_drafts_begin_when_reasoning_has_ended(arms: Arms, reference: Reference, prompts: list[Tokens]) -> None:
    parser = (("reasoning_parser", "are"), ("reasoning_parser_plugin", reasoning.__file__))
    engine = Engine(config=GRAMMAR, check=True, options=(*backend("xgrammar"), *parser))
    [end] = reference.encode(" of")
    prompts = [prompt for prompt in prompts if end not in prompt]

    def with_bias(*biases: float) -> list[CertifyRequest]:
        return requests_of(prompts, OF_BACKEND["xgrammar"], [{"logit_bias": {end: bias}} for bias in biases])

    result = compared(arms, reference, engine, with_bias(4.0, 6.0, 8.0), 0.1)
    assert len({output.token_ids.index(end) for [output] in result.outputs if end in output.token_ids}) > 4
    endless = arms.run(engine, Job(with_bias(-100.0)))
    assert endless.accepted + endless.rejected == 0


BEFORE: dict[str, tuple[dict[str, Any], bool]] = {"vLLM's draft_model": (vllms(STOCK_DRAFT_MODEL), False)}
if is_full():
    # On V2 the scheduler is tested without a model: tests/unit/ways. Triton's interpreter takes long for grammars.
    BEFORE |= {
        "medusa on V2": (HEADS, True),
        "vLLM's eagle3": (vllms(VLLMS_EAGLE3), False),
        "vLLM's draft_model on V2": (vllms(STOCK_DRAFT_MODEL), True),
        "draft_model on V2": ({"method": "draft_model", "model": str(model_path("draft"))}, True),
    }


@pytest.mark.parametrize("name", BEFORE)
def test_drafts_of_the_next_proposer_are_continued(
    name: str, arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """The drafter drafts where the grammar leaves several ways, as names; drafts go on by the grammar."""
    drafter, is_v2 = BEFORE[name]
    config = cascade({"method": "grammar"}, drafter, tokens=3 if is_v2 else 8)
    engine = on_v2(config, random_lengths=False) if is_v2 else Engine(config=config, options=backend("xgrammar"))
    names = {"regex": r"(        self\.[a-z_]{3,12} = [a-z_]{3,12}\n){3}"}
    requests = requests_of(prompts, [names] * 3)
    few = [CertifyRequest(each.prompt, each.params | {"max_tokens": 32}) for each in requests[:3]]
    result = compared(arms, reference, engine, few if is_v2 else requests[::2], 0.0)
    by_grammar = sum(count for metric, count in result.metrics.items() if "accepted_tokens_of_kind" in metric)
    assert min(by_grammar, result.accepted - by_grammar) > (1 if is_v2 else 20)
