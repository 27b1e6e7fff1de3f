"""The server's traffic: its requests by workload, and in a closed loop."""

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vllm_spec_tools.bench.load.workloads import varied
from vllm_spec_tools.bench.prompts import prompts_of_round
from vllm_spec_tools.bench.records import LoadJob, LoadRequest, Phase


@dataclass(frozen=True)
class Workload:
    """Requests of one kind and temperature.

    Attributes:
        name: of the kind, with the temperature where the kind has several.
        num_tokens: that each gets, or at most if it has a schema, on average, rounded.
        predictions: of each prompt's output; none has one if there are none here.
        schemas: of each prompt's output, as JSON; none has one if there are none here.
    """

    name: str
    share: float
    temperature: float
    num_tokens: int
    texts: tuple[str, ...]
    predictions: tuple[str, ...] = ()
    schemas: tuple[str, ...] = ()


def workloads_of(requests: Sequence[LoadRequest]) -> tuple[Workload, ...]:
    """Returns the traffic by kind and temperature, in order of appearance; each request counts alike."""
    groups: dict[tuple[str, float], list[LoadRequest]] = {}
    for request in requests:
        groups.setdefault((request.kind, request.temperature), []).append(request)
    kinds = [kind for kind, _ in groups]
    return tuple(
        Workload(
            kind if kinds.count(kind) == 1 else f"{kind}, T = {temperature:g}",
            len(own) / len(requests),
            temperature,
            round(statistics.fmean(request.num_tokens for request in own)),
            tuple(request.prompt for request in own),
            tuple(request.prediction for request in own) if any(request.prediction for request in own) else (),
            tuple(request.schema for request in own) if any(request.schema for request in own) else (),
        )
        for (kind, temperature), own in groups.items()
    )


def batch_job(workload: Workload, streams: int, number: int, seed: int, num_tokens: int) -> LoadJob:
    """Returns a workload's requests of a round, all sent at once, whose steps are recorded.

    Args:
        num_tokens: that each request gets, or at most if it has a schema.
    """
    texts, predictions, schemas = (
        prompts_of_round(own, streams, number) if own else ("",) * streams
        for own in (workload.texts, workload.predictions, workload.schemas)
    )
    requests = (
        LoadRequest(workload.name, text, workload.temperature, num_tokens, prediction, schema=schema)
        for text, prediction, schema in zip(texts, predictions, schemas, strict=True)
    )
    phase = Phase(tuple(requests), streams * num_tokens, is_pass=True)
    return LoadJob(streams, (phase,), seed + number, record_steps=True)


def load_job(requests: Sequence[LoadRequest], streams: int, number: int, seed: int, num_requests: int) -> LoadJob:
    """Returns a number of requests per stream, in another order for each round.

    Args:
        num_requests: that each stream gets through, about.
    """
    rng = random.Random(f"{seed} {number} {streams}")
    count = streams * (num_requests + 2)
    order: list[LoadRequest] = []
    while len(order) < count:
        order += rng.sample(requests, len(requests))
    sent = [replace(one, num_tokens=varied(rng, one.num_tokens)) for one in order[:count]]
    mean = statistics.fmean(request.num_tokens for request in sent)
    return LoadJob(streams, (Phase(tuple(sent), round(streams * num_requests * mean)),), seed + number)
