"""Checks an engine with the plugin against the baseline."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from vllm_spec_plugin.config.request_options import SPEC
from vllm_spec_plugin.proposers.grammar.config import GrammarConfig
from vllm_spec_plugin.proposers.registry import method_of
from vllm_spec_tools.certify import always_valid
from vllm_spec_tools.certify.baseline import SCHEMA, Baseline, BaselineSizes, Say
from vllm_spec_tools.certify.coupled import compare
from vllm_spec_tools.certify.greedy import first_differences
from vllm_spec_tools.certify.results import SEEDED, Check, Outcome
from vllm_spec_tools.certify.samples import TokenSamples, draw
from vllm_spec_tools.engines.jobs import CertifyRequest, Job, JobOutput, JobResult, RunsJobs

_GRAMMAR = method_of(GrammarConfig)
# Characters; what follows the schema is shorter.
_LONGEST_JSON = 200
# Fewer verified draft tokens say nothing.
_LEAST_DRAFTED = {"greedy": 100, "samples": 400, "seeds": 40, "coupled": 400, "JSON": 40}
# Of samples, of accepted draft tokens and of tokens in place of rejected ones.
_LEAST_OF_EACH = 20
# Rounds after which samples end that would not have enough draft tokens.
_TRIAL = 2


def check_greedy(engine: RunsJobs, baseline: Baseline, name: str, label: str, tight: bool = False) -> Check:
    """Compares greedy outputs; with `tight`, where requests are to be preempted meanwhile."""
    result = engine.run(Job(baseline.work.greedy))

    def top_two(request: int, position: int) -> dict[int, float]:
        logprobs = baseline.greedy.outputs[request][0].logprobs
        assert logprobs is not None
        return logprobs[position]

    found = first_differences(result.tokens(), baseline.greedy.tokens(), top_two, baseline.tolerance)
    faults = [difference for difference in found if not difference.is_tie]
    detail = f"{len(found) - len(faults)} of {len(result.outputs)} outputs differ at a tie" if found else "all equal"
    if faults:
        worst = max(faults, key=lambda d: d.logit_gap)
        detail = f"{len(faults)} of {len(result.outputs)} outputs differ, such as at token {worst.position} of output "
        detail += f"{worst.request}: {worst.tokens[0]} instead of {worst.tokens[1]}, logits {worst.logit_gap:.3g} apart"
    if tight:
        detail += f"; {result.preemptions} preemptions"
    untested = tight and not result.preemptions
    return _check(name, label, "greedy", bool(faults), detail, result, untested, is_required=not tight)


def check_json(
    engine: RunsJobs, baseline: Baseline, label: str, *, uses_grammar: bool = False, has_seeds: bool = True
) -> Check:
    """Reads outputs of requests with a schema; at temperature 0 they are also compared.

    Args:
        uses_grammar: whether drafts are made from grammars. Then the check is required, only these drafts count, and
            seeded outputs are also compared with those of the same engine without drafts.
        has_seeds: whether seeded outputs do not depend on drafts.
    """
    if baseline.json is None:
        return Check("JSON schema", label, "not tested", "the model has no tokenizer", is_required=uses_grammar)
    requests, undrafted = baseline.work.json, dict[int, list[int]]()
    if uses_grammar and has_seeds:
        requests = [_with(one, seed=i) if one.params["temperature"] else one for i, one in enumerate(requests)]
        tokens = engine.run(Job([_with(one, extra_args={SPEC: "off"}) for one in requests])).tokens()
        undrafted = {i: tokens[i] for i, one in enumerate(requests) if "seed" in one.params}
    result = engine.run(Job(requests))
    outputs = [output for [output] in result.outputs]
    # Reasoning that does not end, or late, has no JSON after it, or the beginning of one.
    is_whole = [output.finish_reason == "stop" or len(output.content or "") > _LONGEST_JSON for output in outputs]
    read = [o for o, whole in zip(outputs, is_whole, strict=True) if o.content is None or (o.content and whole)]
    invalid = [output for output in read if not follows_schema(output)]
    detail = f"{len(invalid)} of {len(read)} outputs break the schema" if invalid else f"{len(read)} outputs, all valid"
    if invalid:
        detail += f", such as {invalid[0].text[:80]!r}"
    greedy = [i for i, request in enumerate(baseline.work.json) if not request.params["temperature"]]
    others = [i for i in greedy if result.tokens()[i] != baseline.json.tokens()[i]]
    if others:
        detail += f"; {len(others)} of {len(greedy)} at temperature 0 differ"
    changed = [i for i, own in undrafted.items() if result.tokens()[i] != own]
    if changed:
        detail += f"; {len(changed)} of {len(undrafted)} with a seed differ from those without drafts"
    # With less precision they may differ where two tokens tie.
    is_wrong = bool(invalid) or (bool(others or changed) and baseline.facts["dtype"] == "float32")
    few = False
    if uses_grammar:
        drafted = result.verified_of(_GRAMMAR)
        few, detail = drafted < _LEAST_DRAFTED["JSON"], f"{detail}; {drafted:,} draft tokens from the grammar"
    name = "JSON schema" if baseline.facts["reasoning_end"] is None else "JSON schema after reasoning"
    return _check(name, label, "JSON", is_wrong, detail, result, not read or few, is_required=uses_grammar)


def _with(request: CertifyRequest, **params: Any) -> CertifyRequest:
    return replace(request, params={**request.params, **params})


def follows_schema(output: JobOutput) -> bool:
    """Whether an output ended and has the form of `SCHEMA`."""
    try:
        value = json.loads(output.text if output.content is None else output.content)
        sizes = [(set(item), item["size"], item["name"]) for item in value]
    except (ValueError, TypeError, KeyError):
        return False
    properties = SCHEMA["items"]["properties"]
    return (
        output.finish_reason == "stop"
        and isinstance(value, list)
        and SCHEMA["minItems"] <= len(value) <= SCHEMA["maxItems"]
        and all(
            keys == set(properties) and isinstance(size, bool) and name in properties["name"]["enum"]
            for keys, size, name in sizes
        )
    )


def check_seeds(engine: RunsJobs, baseline: Baseline, label: str) -> Check:
    """Compares outputs of requests with a seed alone and among others."""
    work = baseline.work
    alone = [engine.run(Job([request])).tokens()[0] for request in work.seeded]
    batch = list[CertifyRequest](work.background)
    indices = range(0, 6 * len(work.seeded), 6)
    for index, request in zip(indices, work.seeded, strict=True):
        batch.insert(index, request)
    result = engine.run(Job(batch, torch_seed=5))
    among = [result.tokens()[index] for index in indices]
    others = sum(a != b for a, b in zip(alone, among, strict=True))
    detail = f"{others} of {len(alone)} outputs differ in a crowd" if others else "the same alone and in a crowd"
    is_exact_dtype = baseline.facts["dtype"] == "float32"
    if others and not is_exact_dtype:
        detail += f"; {baseline.facts['dtype']} rounds differently in other batches, so this says nothing"
    untested = bool(others) and not is_exact_dtype
    is_wrong = bool(others) and is_exact_dtype
    return _check("seeds alone and in a crowd", label, "seeds", is_wrong, detail, result, untested)


def check_coupled(engine: RunsJobs, baseline: Baseline, label: str, threshold: float, tight: bool = False) -> Check:
    """Compares outputs of requests with a seed with those without speculation, token by token, and their logits."""
    assert baseline.coupled is not None
    result = engine.run(Job(baseline.work.coupled))
    found = compare([o for [o] in result.outputs], [o for [o] in baseline.coupled.outputs])
    is_wrong = found.is_wrong(threshold, baseline.tolerance)
    detail = f"{found.num_tokens:,} tokens compared, {len(found.differing)} differ"
    if found.differing:
        index, position = found.differing[0]
        detail += f", such as token {position} of output {index}"
    if beyond := found.share_beyond(baseline.tolerance):
        detail += f"; {beyond:.2%} of the logits differ by more than {baseline.tolerance:g}"
    if tight:
        detail += f"; {result.preemptions} preemptions"
    untested = min(result.accepted, result.rejected) < _LEAST_OF_EACH or (tight and not result.preemptions)
    return _check(
        SEEDED,
        label,
        "coupled",
        is_wrong,
        detail,
        result,
        untested,
        p_value=found.p_value,
        smallest_fault=None if is_wrong else found.smallest_fault(threshold),
        is_required=not tight,
    )


def check_samples(
    engine: RunsJobs,
    baseline: Baseline,
    label: str,
    sizes: BaselineSizes,
    max_accepted: int,
    threshold: float,
    say: Say,
) -> Iterator[Check]:
    """Tests the samples of all settings, round by round, until enough or enough evidence against them is there."""
    work, deadline = baseline.work, time.monotonic() + sizes.seconds
    found = {name: TokenSamples(work.prompts) for name in work.settings}
    for name, continuations in baseline.samples.items():
        for prompt, output in continuations:
            found[name].add_plain(prompt, output)
    num_rounds = sizes.samples // sizes.round
    for number in range(num_rounds):
        for index, (name, params) in enumerate(work.settings.items()):
            samples = found[name]
            expected = samples.drafted * num_rounds / max(number, 1)
            is_hopeless = number >= _TRIAL and expected < _LEAST_DRAFTED["samples"]
            if number and (is_hopeless or p_value(samples) < threshold or time.monotonic() > deadline):
                continue
            say(f"{label}: samples with {name}, round {number + 1} of {num_rounds}")
            outputs, drafted, accepted = draw(
                engine, work.prompts, params, sizes.round, 100 * number + index, work.predictions
            )
            samples.drafted += drafted
            samples.num_accepted += accepted
            for prompt, output in outputs:
                samples.add(prompt, output, max_accepted)
            samples.judge(baseline.probabilities, params)
    for name, samples in found.items():
        yield sampling_check(name, label, samples, baseline, threshold)


def sampling_check(name: str, label: str, samples: TokenSamples, baseline: Baseline, threshold: float) -> Check:
    """The outcome of one setting's samples."""
    tested = samples.tested(baseline.probabilities, baseline.work.settings[name])
    p, p_two = always_valid.p_value(samples.log_e), always_valid.p_value(samples.log_e_two)
    of_each = [sum(n for key, n in tested.items() if key.endswith(end)) for end in (" accepted", " rejected")]
    is_enough = sum(of_each) >= _LEAST_DRAFTED["samples"] and min(of_each) >= _LEAST_OF_EACH
    is_wrong = p_value(samples) < threshold
    detail, fault = f"{sum(tested.values()) / max(1, samples.num_tokens()):.0%} of the tokens tested", None
    if samples.has_drafts:
        detail = (
            f"{of_each[0]:,} accepted and {of_each[1]:,} rejected draft tokens tested, {samples.two.num_pairs:,} pairs"
        )
        if is_enough and not is_wrong:
            fault = samples.smallest_fault(threshold)
    outcome: Outcome = "not exact" if is_wrong else "exact" if is_enough or not samples.has_drafts else "not tested"
    if p_value(baseline.control[name]) < threshold:
        # Such as a parameter of the platform's own making: nothing can be said of drafts then.
        outcome, detail = "not tested", "the samples without speculation fail this test as well"
    return Check(
        f"samples, {name}",
        label,
        outcome,
        detail,
        samples.drafted,
        samples.num_accepted,
        samples.num_outputs,
        p,
        p_two if samples.has_drafts else None,
        tested,
        fault,
    )


def p_value(samples: TokenSamples) -> float:
    """The smaller of both tests' p-values."""
    return always_valid.p_value(max(samples.log_e, samples.log_e_two))


def _check(
    name: str,
    label: str,
    kind: str,
    is_wrong: bool,
    detail: str,
    result: JobResult,
    untested: bool = False,
    **more: Any,
) -> Check:
    drafted = result.accepted + result.rejected
    few = drafted < _LEAST_DRAFTED[kind]
    outcome: Outcome = "not exact" if is_wrong else "not tested" if untested or few else "exact"
    return Check(name, label, outcome, detail, drafted, result.accepted, len(result.outputs), **more)
