"""The section `proposer` of a cascade: several proposers, tried in order."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from vllm_spec_plugin.proposers.native.config import NativeConfig
from vllm_spec_plugin.proposers.registry import BundledConfig
from vllm_spec_plugin.proposers.section import ProposerConfig
from vllm_spec_plugin.schema.errors import show
from vllm_spec_plugin.schema.section import ChosenBy, Section, conflicts

MAX_PROPOSERS = 3


class CascadeConfig(Section):
    """Tries several proposers in the given order or, with policy optimal, in the order of expected gain."""

    method: Literal["cascade"] = Field(description="The method of drafting.")
    proposers: tuple[Annotated[BundledConfig | NativeConfig, ChosenBy("method")], ...] = Field(
        strict=False,
        min_length=2,
        max_length=MAX_PROPOSERS,
        description="The proposers, in the order in which they are tried; the next one drafts for requests that the "
        "previous ones have no draft for. Each is a section like proposer; each method at most once.",
        json_schema_extra={"allowed": f"a list of 2 to {MAX_PROPOSERS} proposers, each with its method"},
    )

    @property
    def members(self) -> tuple[ProposerConfig, ...]:
        """The proposers, in their order."""
        return self.proposers

    @property
    def models(self) -> tuple[str, ...]:
        """Folders and hub names of all models that they need."""
        return tuple(model for proposer in self.proposers for model in proposer.models)

    def resolved(self, folder: Path) -> Self:
        """A copy with absolute paths of the models that lie in `folder`, beside the file."""
        return self.model_copy(update={"proposers": tuple(proposer.resolved(folder) for proposer in self.proposers)})

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        methods = [proposer.method for proposer in self.proposers]
        for i, method in enumerate(methods):
            if method in methods[:i]:
                text = f"got {show(method)} a second time; allowed: each method once"
                conflicts([(f"proposers[{i}].method", text)])
        return self

    @model_validator(mode="after")
    def _certain_drafts_stand_before_vllms_drafter(self) -> Self:
        """vLLM keeps one q per request, its drafter's, and would verify drafts of the other proposers with it."""
        if not any(proposer.is_native for proposer in self.proposers):
            return self
        *others, last = self.proposers
        problems = []
        for i, proposer in enumerate(others):
            if not (proposer.is_token_only or proposer.is_native):
                text = f"got {show(proposer.method)}; allowed before vllm: token-only methods, such as suffix"
                problems.append((f"proposers[{i}].method", text))
        if not isinstance(last, NativeConfig):
            text = f"got {show(last.method)} after vllm; allowed: vllm as the last method"
            problems.append((f"proposers[{len(others)}].method", text))
        elif last.draft_sample_method != "greedy":
            text = f"got {show(last.draft_sample_method)}, but the drafts of the methods before vllm are certain"
            problems.append((f"proposers[{len(others)}].config.draft_sample_method", f"{text}; allowed: greedy"))
        conflicts(problems)
        return self

    @model_validator(mode="after")
    def _one_cache_and_one_scope(self) -> Self:
        keeping = [i for i, proposer in enumerate(self.proposers) if proposer.keeps_kv]
        if len(keeping) > 1:
            text = "a second method that keeps a KV cache; allowed: one such method"
            conflicts([(f"proposers[{keeping[1]}].method", f"got {text}")])
        scopes = {proposer.text_scope: i for i, proposer in enumerate(self.proposers) if proposer.text_scope}
        if len(scopes) > 1:
            text = "a method whose shared_scope differs from the others'; allowed: one scope"
            conflicts([(f"proposers[{max(scopes.values())}].method", f"got {text}")])
        return self
