"""A server whose drafts fare as recorded and whose steps take as long as recorded."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle

import numpy as np

from vllm_spec_plugin.scheduling.draft_length.control import (
    Batch,
    Drafting,
    DraftLengthControl,
    DraftRequest,
    Forecast,
    Measured,
)
from vllm_spec_plugin.tools.bench.replay.recording import Recording
from vllm_spec_plugin.tools.bench.replay.traces import NOTHING, Trace, Verified
from vllm_spec_plugin.turns import Turns, asked

# Requests differ in length by as much, so that they do not all end in one step.
_SHORTEST, _LONGEST = 0.5, 1.5
_MOST_TOKENS = 2048


@dataclass(frozen=True)
class Load:
    """Requests that a server gets.

    Attributes:
        streams: requests in flight at any time.
        phases: kinds of text that requests take in turn, phase by phase.
        phase_tokens: output tokens per stream and phase.
        request_tokens: mean output tokens of a request.
        seed: of the order of responses, their lengths, and noise.
    """

    streams: int
    phases: tuple[tuple[str, ...], ...]
    phase_tokens: int
    request_tokens: int
    seed: int


@dataclass
class Result:
    """What happened, step by step.

    Attributes:
        tokens: output tokens of each step.
        seconds: that each step took.
        drafted: draft tokens that each step verified.
    """

    tokens: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)

    @property
    def tokens_per_second(self) -> float:
        """Of all steps."""
        return sum(self.tokens) / sum(self.seconds)

    @property
    def draft_tokens(self) -> float:
        """Mean draft tokens per step."""
        return sum(self.drafted) / len(self.drafted)

    def first(self, num_steps: int) -> "Result":
        """The first steps only."""
        return Result(self.tokens[:num_steps], self.seconds[:num_steps], self.drafted[:num_steps])


@dataclass
class _Request:
    """A request in flight.

    Attributes:
        request_id: its name.
        trace: what becomes of its drafts.
        num_tokens: output tokens that it is to have.
        position: output tokens so far.
        uncomputed: text tokens that the proposer with a KV cache has not computed.
        planned: those of them that were known when the step was planned: the others it computes with any draft.
        turns: proposers whose turn was before the next verification.
        source: proposer that drafted; None if none did.
        draft: what becomes of the draft.
    """

    request_id: str
    trace: Trace
    num_tokens: int
    position: int = 0
    uncomputed: int = 0
    planned: int = 0
    turns: Turns = ()
    source: int | None = None
    draft: Verified = NOTHING

    @property
    def text(self) -> int:
        return self.trace.num_prompt_tokens + self.position


class Server:
    """Serves a load: continuous batching, one step after the other.

    Drafts planned with a step are made at its end, verified in the next step and paid for in the step that makes them,
    as the engine does. Without a control there is no plugin.
    """

    def __init__(self, recording: Recording, proposers: tuple[int, ...], most: int) -> None:
        """Takes what is recorded.

        Args:
            recording: responses of all kinds, and costs of steps.
            proposers: indices of the recorded proposers that there are, in the control's order.
            most: most draft tokens.
        """
        config, self._costs, self._proposers, self._most = recording.config, recording.costs, proposers, most
        self._is_tree = [config.proposers[proposer].drafts_trees for proposer in proposers]
        # The proposer that has to compute a text before it drafts.
        self._kv_index = proposers.index(config.kv_proposer) if config.kv_proposer in proposers else None
        self._forecast: Forecast | None = None
        self._by_kind: dict[str, list[Trace]] = {}
        for trace in recording.traces:
            self._by_kind.setdefault(trace.kind, []).append(trace)

    def serve(self, load: Load, control: DraftLengthControl | None) -> Result:
        """Runs all phases; requests in flight at the end of a phase are given up."""
        rng = np.random.default_rng(load.seed)
        noise = np.random.default_rng(load.seed + 1)
        result = Result()
        self._forecast = None
        if control is not None:
            control.probed(self._costs.probe)
        for number, kinds in enumerate(load.phases):
            waiting = self._requests(cycle(kinds), load, rng, number)
            in_flight = [next(waiting) for _ in range(load.streams)]
            first = len(result.tokens)
            while sum(result.tokens[first:]) < load.streams * load.phase_tokens:
                self._step(in_flight, control, noise, result)
                for i, request in enumerate(in_flight):
                    if request.position >= request.num_tokens:
                        if control is not None:
                            control.forget(request.request_id)
                        in_flight[i] = next(waiting)
            if control is not None:
                for request in in_flight:
                    control.forget(request.request_id)
        return result

    def _requests(self, kinds: Iterator[str], load: Load, rng: np.random.Generator, phase: int) -> Iterator[_Request]:
        for number, kind in enumerate(kinds):
            traces = self._by_kind[kind]
            trace = traces[int(rng.integers(len(traces)))]
            length = round(load.request_tokens * rng.uniform(_SHORTEST, _LONGEST))
            request = _Request(f"request-{phase}-{number}", trace, min(max(length, 2), trace.num_tokens))
            request.uncomputed = trace.num_prompt_tokens
            yield request

    def _step(
        self, requests: list[_Request], control: DraftLengthControl | None, noise: np.random.Generator, result: Result
    ) -> None:
        costs, count = self._costs, len(requests)
        num_tokens = sum(one.draft.drafted + 1 if one.position else one.trace.num_prompt_tokens for one in requests)
        num_drafted = sum(one.draft.drafted for one in requests)
        jitter = float(costs.noise[int(noise.integers(len(costs.noise)))])
        if control is None:
            for one in requests:
                one.position += 1
            result.tokens.append(count)
            result.seconds.append(costs.without_plugin(count, num_tokens) * jitter)
            result.drafted.append(0)
            return
        context = sum(one.text for one in requests)
        forecast, self._forecast = self._forecast, None
        is_off = control.is_off(count)
        planned: list[Turns] = [()] * count if is_off else self._plan(requests, control, context)
        output = 0
        for one in requests:
            accepted = min(len(one.draft.nodes), one.num_tokens - one.position - 1)
            one.position += accepted + 1
            if one.turns:
                is_tree = one.source is not None and self._is_tree[one.source]
                nodes = one.draft.nodes[:accepted] if is_tree else None
                drafted = one.draft.drafted
                control.verified(one.request_id, one.turns, one.source, drafted, accepted, one.position, nodes)
            one.uncomputed += accepted + 1
            output += accepted + 1
            one.turns, one.source, one.draft = (), None, NOTHING
        drafting = self._draft(requests, planned, noise)
        seconds = costs.target(count, num_tokens, has_drafts=num_drafted > 0) * jitter
        seconds += sum(one.seconds for one in drafting)
        if any(planned):
            seconds += costs.preparing(count)
        if num_drafted or not (is_off and control.skips(count)):
            control.measured(
                Measured(
                    num_tokens,
                    count,
                    context,
                    seconds,
                    drafting,
                    num_drafted > 0,
                    forecast,
                    num_drafted,
                    output - count,
                )
            )
        result.tokens.append(output)
        result.seconds.append(seconds)
        result.drafted.append(num_drafted)

    def _plan(self, requests: list[_Request], control: DraftLengthControl, context: int) -> list[Turns]:
        """Turns of each request, empty for those near their end."""
        planned: list[Turns] = [()] * len(requests)
        wanted, rows = [], []
        for row, one in enumerate(requests):
            one.planned = one.uncomputed
            limit = min(self._most, one.num_tokens - one.position - 2)
            if limit > 0:
                uncomputed = tuple(one.planned if i == self._kv_index else 0 for i in range(len(self._proposers)))
                limits = (limit,) * len(self._proposers)
                wanted.append(DraftRequest(one.request_id, limits, uncomputed, one.position))
                rows.append(row)
        if wanted:
            count = len(requests)
            batch = Batch(count, count, context, max(_MOST_TOKENS - count, 0), count - len(wanted))
            for row, turns in zip(rows, control.plan(wanted, batch), strict=True):
                planned[row] = turns
            self._forecast = control.forecast
        return planned

    def _draft(
        self, requests: list[_Request], planned: list[Turns], noise: np.random.Generator
    ) -> tuple[Drafting, ...]:
        """Drafts what was planned: what each proposer did."""
        count = len(self._proposers)
        num_asked, longest, num_drafted, caught_up = [0] * count, [0] * count, [0] * count, [0] * count
        for one, turns in zip(requests, planned, strict=True):
            if not turns or one.position >= one.num_tokens:
                continue
            one.turns = turns
            for index, length in turns:
                draft = one.trace.at(self._proposers[index], one.position, length)
                if draft.drafted:
                    one.source, one.draft = index, draft
                    num_drafted[index] += draft.drafted
                    break
            for index, length in asked(turns, one.source):
                num_asked[index] += 1
                longest[index] = max(longest[index], length)
                if index == self._kv_index:
                    caught_up[index] += one.planned
                    one.uncomputed = 0
        jitters = noise.integers(len(self._costs.drafting_noise), size=count).tolist()
        return tuple(
            Drafting(
                longest[index],
                num_drafted[index],
                caught_up[index],
                self._costs.proposing(proposer, num_asked[index], longest[index], caught_up[index])
                * self._costs.drafting_noise[jitters[index]],
            )
            for index, proposer in enumerate(self._proposers)
        )
