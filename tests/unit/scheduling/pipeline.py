"""An engine core without a model: a scheduler, and a device that verifies and drafts."""

import random
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vllm.v1.engine import EngineCoreOutput
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

from tests.unit.scheduling.cases import FULL, MAX_MODEL_LEN, engine_config, prompt, request, scheduler_over
from vllm_spec_plugin.config.settings import KEY
from vllm_spec_plugin.metrics.counters import StepCounters


class EngineCore:
    """An engine core without a device.

    Attributes:
        scheduler: ours.
        counters: by method, as the frontend was told so far.
    """

    def __init__(self, scheduler: Any) -> None:
        self.scheduler: Any = scheduler
        scheduler.counters_seconds = 0.0
        self.counters: dict[str, StepCounters] = {}

    def total(self, name: str) -> Any:
        """Adds up a counter over methods."""
        whole = StepCounters("all")
        for counters in self.counters.values():
            whole.add(counters)
        return getattr(whole, name)

    def end_step(self, output: Any, outcome: ModelRunnerOutput) -> list[EngineCoreOutput]:
        """Tells the scheduler a step's outcome; returns what goes to clients."""
        answers = self.scheduler.update_from_output(output, outcome).values()
        for answer in answers:
            carried = answer.scheduler_stats and answer.scheduler_stats.kv_connector_stats
            for payload in (carried or {}).get(KEY, ()):
                counted = StepCounters.from_payload(payload)
                self.counters.setdefault(counted.method, StepCounters(counted.method)).add(counted)
        return [each for answer in answers for each in answer.outputs]


class Pipeline(EngineCore):
    """An engine core with a device that runs steps whose outcome the scheduler learns later.

    Attributes:
        texts: by request, its prompt and output, as the device has them.
        drafts: by request, those that wait on the device.
        verified: by step and request that was sampled, its output tokens before and its scheduled draft tokens.
    """

    def __init__(
        self,
        scheduler_cls: Any,
        path: str | Path,
        next_token: Callable[[list[int]], int],
        num_blocks: int = 60,
        delay: int = 0,
        told: Callable[[list[int]], list[int]] = list,
        *,
        is_async: bool | None = None,
    ) -> None:
        """Creates a scheduler.

        Args:
            path: of a plugin.yaml.
            next_token: what the target outputs after a text.
            delay: steps that the device runs ahead of the scheduler.
            told: what the scheduler is told of a request's drafts.
            is_async: whether scheduling is asynchronous; None is with a delay.
        """
        self.next_token, self._delay, self._told = next_token, delay, told
        config = engine_config(path, 24)
        config.scheduler_config.async_scheduling = delay > 0 if is_async is None else is_async
        super().__init__(scheduler_over(scheduler_cls, config, num_blocks, FULL))
        self.texts: dict[str, list[int]] = {}
        self.verified: list[tuple[int, int]] = []
        self._num_prompt: dict[str, int] = {}
        self._computed: dict[str, int] = {}
        self.drafts: dict[str, list[int]] = {}
        self._rng = random.Random(0)
        self._running: deque[tuple[Any, ModelRunnerOutput]] = deque()

    @property
    def lengths(self) -> list[int]:
        """Numbers of draft tokens that were scheduled, all requests together."""
        return [planned for _, planned in self.verified]

    @property
    def control(self) -> Any:
        """The policy of draft lengths."""
        return self.scheduler._adapter.control

    def add(self, name: str, family: int, num_tokens: int, max_tokens: int, **options: Any) -> None:
        min_tokens = options.pop("min_tokens", 0)
        self.texts[name] = prompt(family, num_tokens)
        self._num_prompt[name] = num_tokens
        new = request(name, self.texts[name], max_tokens, options or None)
        assert new.sampling_params is not None
        new.sampling_params.min_tokens = min_tokens
        self.scheduler.add_request(new)

    def step(self) -> None:
        output = self.scheduler.schedule()
        self._running.append((output, self._run(output)))
        if len(self._running) > self._delay:
            self._end()

    def finish(self) -> None:
        while self.scheduler.has_requests():
            self.step()
        while self._running:
            self._end()

    def _run(self, output: Any) -> ModelRunnerOutput:
        """Runs a step on the device: verifies the drafts of the step before, and drafts."""
        for new in output.scheduled_new_reqs:
            self._computed[new.req_id] = new.num_computed_tokens
        cached = output.scheduled_cached_reqs
        for name, computed in zip(cached.req_ids, cached.num_computed_tokens, strict=True):
            if name in cached.resumed_req_ids:
                self._computed[name] = computed
        sampled: dict[str, list[int]] = {}
        for name, count in output.num_scheduled_tokens.items():
            text, scheduled = self.texts[name], output.scheduled_spec_decode_tokens.get(name, ())
            drafts, planned = self.drafts.pop(name, []), len(scheduled)
            # Placeholders stand for the device's own drafts.
            if scheduled and scheduled[0] >= 0:
                drafts = list(scheduled)
            assert planned <= len(drafts), "a placeholder without a draft"
            assert planned < count, "drafts without the token before them"
            sampled[name] = []
            self._computed[name] += count - planned
            assert self._computed[name] <= len(text), "positions after the text"
            if self._computed[name] < len(text):
                continue
            self.verified.append((len(text) - self._num_prompt[name], planned))
            for draft in [*drafts[:planned], None]:
                sampled[name].append(self.next_token(text))
                text.append(sampled[name][-1])
                self._computed[name] = len(text) - 1
                if draft != sampled[name][-1]:
                    break
            guess = list(text)
            for _ in range(output.num_spec_tokens_to_schedule):
                guess.append(self.next_token(guess) if self._rng.random() < 0.7 else 0)
            self.drafts[name] = guess[len(text) :]
        names = list(sampled)
        index = {name: i for i, name in enumerate(names)}
        return ModelRunnerOutput(req_ids=names, req_id_to_index=index, sampled_token_ids=list(sampled.values()))

    def _end(self) -> None:
        """Tells the scheduler a step's outcome."""
        output, outcome = self._running.popleft()
        self.end_step(output, outcome)
        if not self._delay:
            self._tell_drafts(output, outcome.req_ids)

    def _tell_drafts(self, output: Any, names: list[str]) -> None:
        """Tells the scheduler the drafts of a step's requests."""
        requests = self.scheduler.requests
        # Both runners tell the tokens if a request of the step has a grammar.
        has_grammar = any(name in requests and requests[name].structured_output_request for name in names)
        told = list if has_grammar else self._told
        drafts = {name: told(self.drafts.get(name, [])) for name in names}
        self.scheduler.update_draft_token_ids(DraftTokenIds(list(drafts), list(drafts.values())))

    def outputs(self, name: str, num_prompt: int, max_tokens: int) -> list[int]:
        """The request's output, in which the device may have run ahead of the end."""
        return self.texts[name][num_prompt : min(num_prompt + max_tokens, MAX_MODEL_LEN)]

    def expected(self, family: int, num_prompt: int, max_tokens: int) -> list[int]:
        """Its output without drafts."""
        text = prompt(family, num_prompt)
        while len(text) < min(num_prompt + max_tokens, MAX_MODEL_LEN):
            text.append(self.next_token(text))
        return text[num_prompt:]
