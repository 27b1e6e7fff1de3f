"""Each way to draft without a model: its scheduler, a configuration, and a device that verifies and drafts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from vllm.sampling_params import SamplingParams
from vllm.v1.outputs import DraftTokenIds
from vllm.v1.request import Request

from tests.unit.scheduling.cases import _hasher, prompt
from tests.unit.scheduling.pipeline import Pipeline
from vllm_spec_plugin.compat.resting import DrafterAfterRest
from vllm_spec_plugin.draft_plan import longest
from vllm_spec_plugin.gate.ways import Way
from vllm_spec_plugin.messages import DraftResult, plan_of, send
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.register import modes
from vllm_spec_plugin.register.modes import DraftingMode
from vllm_spec_plugin.scheduling import adapter, base, native, operator_switch, token_only
from vllm_spec_plugin.v1.scheduling import scheduler

K = 4
SUFFIX = {"method": "suffix", "min_order": 1, "shared": True, "shared_scope": "global"}
HEADS = {"method": "medusa", "model": str(model_path("medusa"))}
VLLM: dict[str, Any] = {"method": "vllm", "config": {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 5}}
_SCHEDULERS = (
    scheduler.SpecScheduler,
    native.NativeScheduler,
    native.NativeAsyncScheduler,
    token_only.TokenOnlyScheduler,
)


class Kind(NamedTuple):
    """A way's mode, its scheduling, and a configuration.

    Attributes:
        mode: where drafts are made.
        is_async: whether scheduling is asynchronous.
        proposers: in their order.
        told: what the scheduler is told of a request's drafts.
    """

    mode: DraftingMode
    is_async: bool
    proposers: list[dict[str, Any]]
    told: Callable[[list[int]], list[int]] = list


def _number(drafts: list[int]) -> list[int]:
    """V2 keeps drafts on the device, and sends placeholders."""
    return [-1] * len(drafts)


KINDS = {
    Way.OWN: Kind(modes.IN_WORKERS, False, [SUFFIX, HEADS]),
    Way.TOKEN_ONLY_V1: Kind(modes.IN_WORKERS, False, [SUFFIX]),
    Way.VLLM_V1: Kind(modes.NATIVE, False, [VLLM]),
    Way.VLLM_V2: Kind(modes.NATIVE, False, [VLLM], _number),
    Way.VLLM_ASYNC: Kind(modes.NATIVE, True, [VLLM]),
    Way.TOKEN_ONLY: Kind(modes.TOKEN_ONLY, False, [SUFFIX], lambda drafts: [0] * K),
    Way.HEADS: Kind(modes.HEADS, False, [HEADS], _number),
    Way.HEADS_ASYNC: Kind(modes.HEADS, True, [HEADS]),
    Way.TOKEN_ONLY_VLLM_V1: Kind(modes.MIXED, False, [SUFFIX, VLLM]),
    Way.TOKEN_ONLY_VLLM_V2: Kind(modes.MIXED, False, [SUFFIX, VLLM], _number),
    Way.TOKEN_ONLY_HEADS: Kind(modes.MIXED_HEADS, False, [SUFFIX, HEADS], _number),
}


class TokenOnlyPipeline(Pipeline):
    """The plugin's workers draft nothing."""

    def _tell_drafts(self, output: Any, names: list[str]) -> None:
        pass


class OwnPipeline(Pipeline):
    """Drafts as the plugin's workers do: for requests of the scheduler's plan only, with a message of their own."""

    def _tell_drafts(self, output: Any, names: list[str]) -> None:
        draft_plan = plan_of(output).draft_plans
        drafts = {name: self.drafts.get(name, [])[: longest(draft_plan.get(name, ()))] for name in names}
        self.drafts = {name: own for name, own in drafts.items() if own}
        told = DraftTokenIds(list(drafts), list(drafts.values()))
        send(told, DraftResult(sources={name: draft_plan[name][0][0] for name, own in drafts.items() if own}))
        self.scheduler.update_draft_token_ids(told)


def section(proposers: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the section `proposer` of these."""
    return proposers[0] if len(proposers) == 1 else {"method": "cascade", "proposers": proposers}


class Bench:
    """Makes pipelines of a way."""

    def __init__(self, way: Way, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Takes the folder of the configuration file."""
        self.way, self.kind, self._folder, self.monkeypatch = way, KINDS[way], folder, monkeypatch

    def pipeline(
        self,
        next_token: Callable[[list[int]], int],
        *,
        policy: str = "fixed",
        num_blocks: int = 60,
        control: Any = None,
        first: dict[str, Any] | None = None,
        **sections: Any,
    ) -> Pipeline:
        """Creates a pipeline.

        Args:
            next_token: what the target outputs after a text.
            policy: of draft lengths.
            num_blocks: KV blocks; few make requests be preempted.
            control: a policy in place of the configured one.
            first: a proposer in place of the first one.
            sections: other sections of the configuration.
        """
        proposers = [first or self.kind.proposers[0], *self.kind.proposers[1:]]
        path, lengths = self._folder / "plugin.yaml", {"policy": policy, "tokens": K}
        self._written = {"proposer": section(proposers), "draft_length": lengths, **sections}
        path.write_text(yaml.safe_dump(self._written))
        patch = self.monkeypatch.setattr
        patch(operator_switch, "_LOOK", 0.0)
        patch(operator_switch, "_SETTLED", 0.0)
        # As on the V2 runner, and for vLLM's n-grams on V1.
        patch(native, "can_shorten", lambda config: True)
        # As for a draft model, and for heads.
        after = DrafterAfterRest.CATCHES_UP if VLLM in self.kind.proposers else DrafterAfterRest.AS_BEFORE
        patch(native, "after_rest", lambda config: after)
        if control is not None:
            patch(base, "create_control", lambda *_: control)
        name = self.kind.mode.schedulers[self.kind.is_async]
        [scheduler_cls] = [cls for cls in _SCHEDULERS if f"{cls.__module__}.{cls.__name__}" == name]
        pipeline_cls = {Way.OWN: OwnPipeline, Way.TOKEN_ONLY_V1: TokenOnlyPipeline}.get(self.way, Pipeline)
        delay = int(self.kind.is_async)
        return pipeline_cls(scheduler_cls, path, next_token, num_blocks, delay, self.kind.told)

    def switch(self, **keys: Any) -> None:
        """Changes the section `switch` of the configuration of the latest pipeline, which looks at it in each step."""
        (self._folder / "plugin.yaml").write_text(yaml.safe_dump({**self._written, "switch": keys}))

    def equal_steps(self, clock: Any) -> None:
        """Makes steps equally long for the policy, so that it drafts much."""
        self.monkeypatch.setattr(adapter, "time", clock)

    @property
    def methods(self) -> list[str]:
        """The methods of the way's proposers."""
        return [proposer["method"] for proposer in self.kind.proposers]


def add(pipeline: Pipeline, name: str, num_tokens: int, max_tokens: int, params: dict[str, Any], **given: Any) -> None:
    """Adds a request with sampling parameters and attributes of vLLM's `Request`."""
    pipeline.texts[name], pipeline._num_prompt[name] = prompt(1, num_tokens), num_tokens
    options = SamplingParams(max_tokens=max_tokens, ignore_eos=True, **params)
    new = Request(name, prompt(1, num_tokens), options, None, block_hasher=_hasher(), **given)
    if options.structured_outputs is not None:
        options.structured_outputs._backend = "xgrammar"
        manager = pipeline.scheduler.structured_output_manager
        manager.grammar_init(new)
        manager.executor.submit(int).result()
    pipeline.scheduler.add_request(new)
