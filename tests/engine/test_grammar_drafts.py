"""Drafts from grammars leave structured outputs as they are, with each back end of vLLM."""

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.engine import texts
from tests.engine.arms import GRAMMAR, THEN_GRAMMAR, Arms, Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.greedy import assert_same_tokens
from tests.engine.jobs import CertifyRequest, Job, JobResult
from tests.engine.v2.drafters import bundled_target
from tests.engine.v2.drafters import engine as v2_engine
from tests.fixed_length import STOCK_DRAFT_MODEL
from tests.sizes import is_full
from vllm_spec_plugin.models import model_path

pytestmark = pytest.mark.engine

NUM_PROMPTS, LONGEST = 6, 120
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
# The same as Lark.
LARK = 'start: line line\nline: "return self." name " + " name "\\n"\nname: "first_value" | "second_value"'
STRUCTURES: dict[str, dict[str, Any]] = {
    "json": {"json": SCHEMA},
    "regex": {"regex": r"(self\.(name|value) = [a-z]{1,4} + self\.default_value\n){2,3}"},
    "choice": {"choice": ["the first value of the list", "the last value of the list", "none"]},
    "ebnf": {"grammar": LINES},
}
KINDS = {"xgrammar": tuple(STRUCTURES), "guidance": tuple(STRUCTURES), "outlines": ("json", "regex", "choice")}


def backend(name: str, *, any_whitespace: bool = False) -> tuple[tuple[str, Any], ...]:
    settings = (("backend", name), ("disable_any_whitespace", not any_whitespace and name != "outlines"))
    return (("structured_outputs_config", settings),)


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[Tokens]:
    return texts.sources(reference, NUM_PROMPTS, LONGEST)


def structured(prompts: list[Tokens], name: str, **params: Any) -> Job:
    """Each prompt with each structure; seeds differ."""
    requests: list[CertifyRequest] = []
    for prompt in prompts:
        for kind in KINDS[name]:
            given = {"grammar": LARK} if (name, kind) == ("guidance", "ebnf") else STRUCTURES[kind]
            seed = {"seed": 1000 + len(requests)} if params["temperature"] else {}
            requests.append(CertifyRequest(prompt, {"max_tokens": 80, "structured_outputs": given, **params, **seed}))
    return Job(requests)


def without_drafts(job: Job) -> Job:
    off = {"extra_args": {"spec": "off"}}
    return Job([CertifyRequest(request.prompt, request.params | off) for request in job.requests])


def assert_sound(result: JobResult) -> None:
    assert not any(count for name, count in result.metrics.items() if "proposer_errors" in name)


@pytest.mark.parametrize("name", KINDS)
def test_outputs_are_those_without_drafts(name: str, arms: Arms, reference: Reference, prompts: list[Tokens]) -> None:
    """Greedy ones as without the plugin; seeded ones as without drafts.

    The target tokenizes names otherwise than its tokenizer does, so many drafts are rejected.
    """
    greedy, seeded = structured(prompts, name, temperature=0.0), structured(prompts, name, temperature=1.0)
    plain = arms.run(Engine(options=backend(name)), greedy)
    engine = Engine(config=GRAMMAR, check=True, options=backend(name))
    result = arms.run(engine, greedy)
    assert_same_tokens(reference, [request.prompt for request in greedy.requests], result, plain)
    assert_sound(result)
    num_tokens = sum(map(len, result.tokens()))
    assert result.accepted > 0.3 * num_tokens
    assert result.accepted > 0.2 * (result.accepted + result.rejected)
    drafted = arms.run(engine, seeded)
    assert drafted.tokens() == arms.run(engine, without_drafts(seeded)).tokens()
    assert drafted.accepted > 0.2 * sum(map(len, drafted.tokens()))
    assert_sound(drafted)


def test_free_whitespace_is_drafted_in_the_style_of_the_output(
    arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    job = Job(structured(prompts, "xgrammar", temperature=0.0).requests[:: len(STRUCTURES)])
    free = backend("xgrammar", any_whitespace=True)
    plain, result = arms.run(Engine(options=free), job), arms.run(Engine(config=GRAMMAR, check=True, options=free), job)
    assert_same_tokens(reference, prompts, result, plain)
    assert result.accepted > 0.2 * sum(map(len, result.tokens()))
    assert_sound(result)


def test_requests_without_structure_get_no_drafts_beside_structured_ones(arms: Arms, prompts: list[Tokens]) -> None:
    free = [CertifyRequest(prompt, {"temperature": 0.0, "max_tokens": 20, "ignore_eos": True}) for prompt in prompts]
    result = arms.run(Engine(config=GRAMMAR, check=True, options=backend("xgrammar")), Job(free))
    assert result.accepted + result.rejected == 0


def test_drafts_of_others_are_cut_and_continued(arms: Arms, reference: Reference, prompts: list[Tokens]) -> None:
    job = structured(prompts, "xgrammar", temperature=0.0)
    plain = arms.run(Engine(options=backend("xgrammar")), job)
    result = arms.run(Engine(config=THEN_GRAMMAR, check=True, options=backend("xgrammar")), job)
    assert_same_tokens(reference, [request.prompt for request in job.requests], result, plain)
    assert_sound(result)
    assert result.accepted > 0.3 * sum(map(len, result.tokens()))


BEFORE = {"draft_model": {"method": "vllm", "config": json.loads(STOCK_DRAFT_MODEL)}}
BEFORE_V2 = {"medusa": {"method": "medusa", "model": str(model_path("medusa"))}}
if is_full():
    EAGLE3 = {"method": "eagle3", "model": str(model_path("eagle3"))}
    BEFORE |= {"eagle3": {"method": "vllm", "config": EAGLE3}}
    BEFORE_V2 |= {"draft_model": {"method": "draft_model", "model": str(model_path("draft"))}} | BEFORE


def before(drafter: dict[str, Any], tokens: int = 8) -> str:
    """Path of a file that drafts from grammars before that drafter."""
    path = Path(tempfile.mkdtemp(prefix="grammar-")) / "plugin.yaml"
    proposer = {"method": "cascade", "proposers": [{"method": "grammar"}, drafter]}
    path.write_text(yaml.safe_dump({"proposer": proposer, "draft_length": {"policy": "fixed", "tokens": tokens}}))
    return str(path)


def names(prompts: list[Tokens], temperature: float) -> Job:
    """Statements with names that are free."""
    given = {"structured_outputs": {"regex": r"(        self\.[a-z_]{3,12} = [a-z_]{3,12}\n){3}"}}
    params = {"max_tokens": 80, "temperature": temperature} | given
    seeds = ({"seed": i} if temperature else {} for i in range(len(prompts)))
    return Job([CertifyRequest(prompt, params | seed) for prompt, seed in zip(prompts, seeds, strict=True)])


def assert_both_drafted(result: JobResult, least: int) -> None:
    """Tokens of grammars and of the drafter after them were accepted."""
    by_grammar = sum(count for name, count in result.metrics.items() if "accepted_tokens_of_kind" in name)
    assert min(by_grammar, result.accepted - by_grammar) > least


@pytest.mark.parametrize("name", BEFORE)
def test_drafts_of_vllms_drafters_are_continued(
    name: str, arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """The drafter drafts where the grammar leaves several ways; drafts go on by the grammar."""
    job = names(prompts, 0.0)
    plain = arms.run(Engine(options=backend("xgrammar")), job)
    result = arms.run(Engine(config=before(BEFORE[name]), options=backend("xgrammar")), job)
    assert_same_tokens(reference, [request.prompt for request in job.requests], result, plain)
    assert_both_drafted(result, 20)


@pytest.mark.parametrize("name", BEFORE_V2)
def test_drafts_in_vllms_v2_runner_are_continued(
    name: str, arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    drafter = name if name in BEFORE else "none"
    engine = v2_engine(drafter, bundled_target(reference))
    engine = dataclasses.replace(engine, config=before(BEFORE_V2[name], 3), options=backend("xgrammar"))
    for temperature in (0.0, 1.0):
        job = names(prompts[:4], temperature)
        result = arms.run(engine, job)
        assert result.tokens() == arms.run(engine, without_drafts(job)).tokens()
        assert_both_drafted(result, 5)
