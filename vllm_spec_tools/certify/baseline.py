"""Runs the engine without speculation: what every check compares with."""

import itertools
import pickle
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.certify import prompts as texts
from vllm_spec_tools.certify.greedy import tolerance_of
from vllm_spec_tools.certify.samples import MAX_TOKENS, TokenSamples, draw
from vllm_spec_tools.certify.settings import Settings, predicting, sampling_settings
from vllm_spec_tools.certify.target_probabilities import TargetProbabilities, read_probabilities
from vllm_spec_tools.engines.jobs import CertifyRequest, Job, JobOutput, JobResult, RunsJobs, Tokens

Say = Callable[[str], None]
# What most models may be given: special tokens often come first or last.
_SPECIAL = 16
SCHEMA: dict[str, Any] = {
    "type": "array",
    "minItems": 3,
    "maxItems": 5,
    "items": {
        "type": "object",
        "properties": {"name": {"enum": ["self", "value"]}, "size": {"type": "boolean"}},
        "required": ["name", "size"],
        "additionalProperties": False,
    },
}
_FREE: dict[str, Any] = {"ignore_eos": True, "detokenize": False}
_SEEDED, _COMPANY = 6, 40
# Of the time for an engine's samples, for those without speculation.
_SHARE = 0.5


@dataclass(frozen=True)
class BaselineSizes:
    """Number of outputs to sample.

    Attributes:
        samples: maximum continuations of each prompt in each setting.
        round: continuations of each prompt after which the evidence is looked at, a multiple of 25.
        seconds: time for an engine's samples.
        seeded: of coupled verification, outputs of each prompt in each setting that are compared token by token.
        by_vllm: whether vLLM's own sampler verifies, which refuses some sampling parameters.
        structured: whether a half of the greedy and the seeded requests have a schema, for drafts from grammars.
    """

    quick: bool
    greedy: int
    greedy_tokens: int
    sampling_prompts: int
    samples: int
    round: int
    seconds: float
    seeded: int = 0
    by_vllm: bool = False
    structured: bool = False

    def of_coupled(self, is_coupled: bool) -> "BaselineSizes":
        """Returns sizes with seeded outputs in place of samples where verification is coupled, else without these."""
        return replace(self, samples=0) if is_coupled else replace(self, seeded=0)

    def lasting(self, minutes: float) -> "BaselineSizes":
        """Returns sizes for another time: there are as many times more samples."""
        scale = 60 * minutes / self.seconds
        return replace(self, seconds=60 * minutes, samples=max(self.round, round(self.samples * scale)))


DEFAULT = BaselineSizes(False, 64, 64, 6, 800, 100, 420.0, 8)
QUICK = BaselineSizes(True, 32, 48, 4, 300, 50, 120.0, 4)


@dataclass(frozen=True)
class Work:
    """The requests of all checks.

    Attributes:
        json: requests with a schema; empty without a tokenizer.
        coupled: requests with a seed in all settings; empty if verification is not coupled.
        predictions: by prompt, outputs that samples are given as predictions; empty is none.
    """

    greedy: list[CertifyRequest]
    json: list[CertifyRequest]
    coupled: list[CertifyRequest]
    seeded: list[CertifyRequest]
    background: list[CertifyRequest]
    prompts: list[Tokens]
    settings: Settings
    predictions: dict[Tokens, list[list[int]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Baseline:
    """Outputs and probabilities of the engine without speculation.

    Attributes:
        tolerance: of logits, see `greedy.TOLERANCES`.
        greedy: result of the greedy requests, with the two highest logits at each token.
        json: result of the requests with a schema; None if there are none.
        coupled: result of the seeded requests; None if there are none.
        control: its samples against the distribution: what the tests say where nothing is speculated.
    """

    facts: dict[str, Any]
    tolerance: float
    work: Work
    greedy: JobResult
    json: JobResult | None
    coupled: JobResult | None
    samples: dict[str, list[tuple[Tokens, JobOutput]]]
    probabilities: TargetProbabilities
    control: dict[str, TokenSamples]

    def predicting(self) -> "Baseline":
        """Returns it with requests that predict their outputs, some rightly."""
        work, greedy = self.work, self.greedy.tokens()
        said: dict[Tokens, list[list[int]]] = {prompt: [] for prompt in work.prompts}
        for prompt, output in (pair for continuations in self.samples.values() for pair in continuations):
            said[prompt].append(output.token_ids)
        of_requests = (("greedy", greedy), ("seeded", greedy), ("background", greedy))
        own = [(name, getattr(self, name)) for name in ("json", "coupled")]
        known = [*of_requests, *((name, result.tokens()) for name, result in own if result)]
        made: dict[str, Any] = {name: predicting(getattr(work, name), outputs) for name, outputs in known}
        return replace(self, work=replace(work, **made, predictions=said))


def run_baseline(
    engine: RunsJobs, given: Sequence[str] | None, sizes: BaselineSizes, tolerance: float | None, say: Say
) -> Baseline:
    """Makes the requests of all checks, and runs them.

    Args:
        tolerance: of logits; None is the dtype's.
    """
    facts = engine.facts()
    allowed = tolerance_of(facts["dtype"]) if tolerance is None else tolerance
    say("plain engine: reading prompts")
    work = _work(engine, facts, given, sizes)
    say("plain engine: greedy outputs")
    top_two = {"logprobs": 2}
    greedy = engine.run(Job([CertifyRequest(r.prompt, r.params | top_two) for r in work.greedy]))
    json = engine.run(Job(work.json)) if work.json else None
    say("plain engine: seeded outputs")
    coupled = engine.run(Job(work.coupled)) if work.coupled else None
    samples = _samples(engine, work, sizes, say)
    seen: Counter[tuple[Tokens, Tokens]] = Counter()
    for continuations in samples.values():
        for prompt, output in continuations:
            seen.update((prompt, tuple(output.token_ids[:length])) for length in range(MAX_TOKENS))
    say("plain engine: the target's probabilities")
    probabilities = read_probabilities(engine, seen, facts["vocab_size"], max(allowed, 1e-3))
    control = {}
    for name, continuations in samples.items():
        control[name] = TokenSamples(work.prompts, has_drafts=False)
        for prompt, output in continuations:
            control[name].add(prompt, output)
        control[name].judge(probabilities, work.settings[name])
    return Baseline(facts, allowed, work, greedy, json, coupled, samples, probabilities, control)


def _samples(engine: RunsJobs, work: Work, sizes: BaselineSizes, say: Say) -> dict[str, list[tuple[Tokens, JobOutput]]]:
    """Continuations in all settings, round by round; the rounds end early where they take long."""
    samples: dict[str, list[tuple[Tokens, JobOutput]]] = {name: [] for name in work.settings}
    end, num_rounds = time.monotonic() + sizes.seconds * _SHARE, sizes.samples // sizes.round
    for number in range(num_rounds):
        if number and time.monotonic() > end:
            break
        for index, (name, params) in enumerate(work.settings.items()):
            say(f"plain engine: samples with {name}, round {number + 1} of {num_rounds}")
            # Seeds change no distribution; on a CPU vLLM 0.32 by itself stops where a seeded prompt is cut in chunks.
            unseeded = {key: value for key, value in params.items() if key != "seed"}
            # Other numbers than with speculation, as both are compared.
            samples[name] += draw(engine, work.prompts, unseeded, sizes.round, 1_000_000 + 100 * number + index)[0]
    return samples


def _work(engine: RunsJobs, facts: dict[str, Any], given: Sequence[str] | None, sizes: BaselineSizes) -> Work:
    longest, reasoning_end = facts["max_model_len"] - 128, facts["reasoning_end"]
    vocabulary: Sequence[int] = range(_SPECIAL, facts["vocab_size"] - _SPECIAL)
    encoded: list[Tokens] = []
    if facts["has_tokenizer"]:
        encoded = [prompt[-longest:] for prompt in engine.run(Job([], texts=given or texts.built_in())).encoded]
        vocabulary = sorted({token for prompt in encoded for token in prompt})
    random = texts.random_prompts(vocabulary, 8)
    # User's prompts, or those that repeat themselves, and random ones.
    some = encoded[: sizes.sampling_prompts - 1]
    prompts = [_cut(p, facts["block_size"]) for p in [*some, *random[: sizes.sampling_prompts - len(some)]]]
    once = {"max_tokens": 1, "temperature": 0.0, "detokenize": False, "logprobs": 4}
    counts: Counter[int] = Counter()
    for [output] in engine.run(Job([CertifyRequest(prompt, once) for prompt in prompts])).outputs:
        assert output.logprobs is not None
        counts.update(list(output.logprobs[0]))
    settings = sampling_settings([token for token, _ in counts.most_common(4)], sizes.quick, sizes.by_vllm)
    shaped = texts.shaped_for_greedy([*encoded, *random], sizes.greedy, longest)
    json: list[CertifyRequest] = []
    if facts["has_tokenizer"]:
        [asked] = engine.run(Job([], texts=[texts.JSON_PROMPT])).encoded
        # Room for reasoning before it.
        schema = {"structured_outputs": {"json": SCHEMA}, "max_tokens": 200 if reasoning_end is None else 400}
        for number, prompt in enumerate([asked, asked[1:], *(p + asked for p in prompts)]):
            # Reasoning ends sooner or later, where there is any.
            ending = {} if reasoning_end is None else {"logit_bias": {reasoning_end: (4.0, 6.0, 8.0, 12.0)[number % 4]}}
            for temperature in (0.0, 1.0):
                json.append(CertifyRequest(prompt[-longest:], schema | ending | {"temperature": temperature}))
    greedy = {"temperature": 0.0, "max_tokens": sizes.greedy_tokens} | _FREE
    seeded = {"temperature": 1.0, "top_p": 0.9, "max_tokens": 40} | _FREE
    # In all settings, each with a seed of its own and the logit of its token.
    repeated = [(prompt, params) for params in settings.values() for prompt in prompts for _ in range(sizes.seeded)]
    coupled = [
        CertifyRequest(prompt, {"max_tokens": 40, "logprobs": 1} | _FREE | params | {"seed": seed})
        for seed, (prompt, params) in enumerate(repeated)
    ]
    half = _half_structured if sizes.structured and facts["has_tokenizer"] else list
    alone = itertools.islice(itertools.cycle([*prompts, *shaped[:3]]), _SEEDED)
    company = itertools.islice(itertools.cycle(shaped), _COMPANY)
    return Work(
        half([CertifyRequest(prompt, greedy) for prompt in shaped]),
        json,
        half(coupled),
        half([CertifyRequest(prompt, seeded | {"seed": seed}) for seed, prompt in enumerate(alone)]),
        half([CertifyRequest(prompt, _company(number)) for number, prompt in enumerate(company)]),
        prompts,
        settings if sizes.samples else {},
    )


def _cut(prompt: Tokens, block_size: int) -> Tokens:
    """Cuts a prompt to whole KV blocks and one token: other requests with it compute only that."""
    whole = (len(prompt) - 1) // block_size * block_size
    return prompt[-whole - 1 :] if whole else prompt


def _half_structured(requests: Sequence[CertifyRequest]) -> list[CertifyRequest]:
    """Gives every second request the schema, which also ends it."""
    more: dict[str, Any] = {"structured_outputs": {"json": SCHEMA}, "ignore_eos": False}
    return [
        CertifyRequest(request.prompt, request.params | more) if number % 2 else request
        for number, request in enumerate(requests)
    ]


def _company(number: int) -> dict[str, Any]:
    kinds: tuple[dict[str, Any], ...] = (
        {"temperature": 1.0},
        {"temperature": 0.0},
        {"temperature": 0.8, "seed": 7, "top_k": 50},
        {"temperature": 1.0, "min_p": 0.02, "repetition_penalty": 1.2},
    )
    return kinds[number % 4] | {"max_tokens": 5 + 7 * number % 50} | _FREE


def read_baseline(path: Path, made_with: dict[str, Any]) -> Baseline | None:
    """Returns the baseline of a file; None if there is no file.

    Args:
        path: a file that an earlier certification wrote, on this machine: reading one may run code that is in it.
        made_with: what the baseline depends on, by name.

    Raises:
        UserError: the file has none, or one that was made with something else.
    """
    if not path.exists():
        return None
    content = path.read_bytes()
    try:
        known, baseline = pickle.loads(content)
        assert isinstance(baseline, Baseline)
    except Exception:  # pickle raises anything for files that are no baselines
        allowed = "a file that certify --baseline wrote, or a new one"
        raise UserError(f"--baseline {path}: got no baseline of this version; allowed: {allowed}") from None
    if other := [name for name, value in made_with.items() if known.get(name) != value]:
        text = f"got a baseline of other {', '.join(other)}; allowed: one of the same, or a new file"
        raise UserError(f"--baseline {path}: {text}")
    return baseline
