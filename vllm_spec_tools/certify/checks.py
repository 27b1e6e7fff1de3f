"""Checks an engine with the plugin against the baseline."""

import json
import time
from collections.abc import Iterator
from typing import Any

from vllm_spec_tools.certify import always_valid
from vllm_spec_tools.certify.baseline import SCHEMA, Baseline, BaselineSizes, Say
from vllm_spec_tools.certify.greedy import first_differences
from vllm_spec_tools.certify.jobs import CertifyRequest, Job, JobOutput, JobResult, RunsJobs
from vllm_spec_tools.certify.results import Check, Outcome
from vllm_spec_tools.certify.samples import TokenSamples, draw

# Characters; what follows the schema is shorter.
_LONGEST_JSON = 200
# Fewer verified draft tokens say nothing.
_LEAST_DRAFTED = {"greedy": 100, "samples": 400, "seeds": 40, "JSON": 40}


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


def check_json(engine: RunsJobs, baseline: Baseline, label: str) -> Check:
    """Reads outputs of requests with a schema; at temperature 0 they are also compared."""
    if baseline.json is None:
        return Check("JSON schema", label, "not tested", "the model has no tokenizer", is_required=False)
    result = engine.run(Job(baseline.work.json))
    outputs = [output for [output] in result.outputs]
    # Reasoning that does not end, or late, has no JSON after it, or the beginning of one.
    read = [o for o in outputs if o.content is None or (o.content and (_ended(o) or len(o.content) > _LONGEST_JSON))]
    invalid = [output for output in read if not follows_schema(output)]
    detail = f"{len(invalid)} of {len(read)} outputs break the schema" if invalid else f"{len(read)} outputs, all valid"
    if invalid:
        detail += f", such as {invalid[0].text[:80]!r}"
    greedy = [i for i, request in enumerate(baseline.work.json) if not request.params["temperature"]]
    others = [i for i in greedy if result.tokens()[i] != baseline.json.tokens()[i]]
    if others:
        detail += f"; {len(others)} of {len(greedy)} at temperature 0 differ"
    # With less precision they may differ where two tokens tie.
    is_wrong = bool(invalid) or (bool(others) and baseline.facts["dtype"] == "float32")
    name = "JSON schema" if baseline.facts["reasoning_end"] is None else "JSON schema after reasoning"
    return _check(name, label, "JSON", is_wrong, detail, result, not read, is_required=False)


def _ended(output: JobOutput) -> bool:
    return output.finish_reason == "stop"


def follows_schema(output: JobOutput) -> bool:
    """Whether an output ended and has the form of `SCHEMA`."""
    if not _ended(output):
        return False
    try:
        value = json.loads(output.text if output.content is None else output.content)
    except ValueError:
        return False
    properties = SCHEMA["items"]["properties"]
    return (
        isinstance(value, list)
        and SCHEMA["minItems"] <= len(value) <= SCHEMA["maxItems"]
        and all(
            isinstance(item, dict)
            and set(item) == set(properties)
            and item["name"] in properties["name"]["enum"]
            and isinstance(item["size"], bool)
            for item in value
        )
    )


def check_seeds(engine: RunsJobs, baseline: Baseline, label: str) -> Check:
    """Compares outputs of requests with a seed alone and among others."""
    work = baseline.work
    alone = [engine.run(Job([request])).tokens()[0] for request in work.seeded]
    crowd = list[CertifyRequest](work.company)
    indices = range(0, 6 * len(work.seeded), 6)
    for index, request in zip(indices, work.seeded, strict=True):
        crowd.insert(index, request)
    result = engine.run(Job(crowd, torch_seed=5))
    among = [result.tokens()[index] for index in indices]
    others = sum(a != b for a, b in zip(alone, among, strict=True))
    detail = f"{others} of {len(alone)} outputs differ in a crowd" if others else "the same alone and in a crowd"
    is_exact_dtype = baseline.facts["dtype"] == "float32"
    if others and not is_exact_dtype:
        detail += f"; {baseline.facts['dtype']} rounds differently in other batches, so this says nothing"
    untested = bool(others) and not is_exact_dtype
    is_wrong = bool(others) and is_exact_dtype
    return _check("seeds alone and in a crowd", label, "seeds", is_wrong, detail, result, untested)


def check_samples(
    engine: RunsJobs,
    baseline: Baseline,
    label: str,
    sizes: BaselineSizes,
    max_accepted: int,
    threshold: float,
    deadline: float,
    say: Say,
) -> Iterator[Check]:
    """Tests the samples of all settings, round by round, until enough or enough evidence against them is there."""
    found = {name: TokenSamples() for name in baseline.work.settings}
    for name, continuations in baseline.samples.items():
        for prompt, output in continuations:
            found[name].pair(0, prompt, output)
    for number in range(sizes.samples // sizes.round):
        for index, (name, params) in enumerate(baseline.work.settings.items()):
            samples = found[name]
            is_decided = not samples.drafted or p_value(samples) < threshold
            if number and (is_decided or time.monotonic() > deadline):
                continue
            say(f"{label}: samples with {name}, round {number + 1} of {sizes.samples // sizes.round}")
            work, seed = baseline.work, 100 * index + number
            outputs, drafted, accepted = draw(engine, work.prompts, params, sizes.round, seed, work.predictions)
            samples.drafted += drafted
            samples.accepted += accepted
            for prompt, output in outputs:
                samples.add(prompt, output, max_accepted)
                samples.pair(1, prompt, output)
            samples.judge(baseline.law, params)
    for name, samples in found.items():
        yield sampling_check(name, label, samples, baseline, threshold)


def sampling_check(name: str, label: str, samples: TokenSamples, baseline: Baseline, threshold: float) -> Check:
    """The outcome of one setting's samples."""
    tested = {f"{kind} {number}": count for (kind, number), count in samples.tested(baseline.law).items()}
    p, p_two = always_valid.p_value(samples.log_e), always_valid.p_value(samples.log_e_two)
    is_control = not samples.two
    enough = is_control or min(samples.drafted, sum(tested.values())) >= _LEAST_DRAFTED["samples"]
    outcome: Outcome = "not exact" if min(p, p_two) < threshold else "exact" if enough else "not tested"
    detail = f"{samples.share_tested(baseline.law):.0%} of the tokens tested"
    detail += "" if is_control else f", {samples.num_pairs():,} pairs"
    if p_value(baseline.control[name]) < threshold:
        # Such as a parameter of the platform's own making: nothing can be said of drafts then.
        outcome, detail = "not tested", "the samples without speculation fail this test as well"
    return Check(
        f"samples, {name}",
        label,
        outcome,
        detail,
        samples.drafted,
        samples.accepted,
        samples.num_outputs,
        p,
        None if is_control else p_two,
        samples.chi_square(baseline.law, baseline.work.settings[name]).p_value,
        tested,
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
