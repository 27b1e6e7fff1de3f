"""Drafts from grammars leave structured outputs as they are, with each back end of vLLM."""

from typing import Any

import pytest

from tests.engine import texts
from tests.engine.arms import GRAMMAR, THEN_GRAMMAR, Arms, Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.greedy import assert_same_tokens
from tests.engine.jobs import CertifyRequest, Job, JobResult

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
    print(sorted(name for name in result.metrics if "accept" in name or "draft" in name))
    assert result.accepted > 0.3 * sum(map(len, result.tokens()))
