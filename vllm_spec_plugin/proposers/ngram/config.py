"""The section of a plugin.yaml for n-grams, which the suffix proposer drafts; `docs/design/suffix.md` says why."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from vllm_spec_plugin.proposers.section import ProposerConfig, Target
from vllm_spec_plugin.proposers.sharing import (
    SHARED,
    SHARED_SCOPE,
    SHARED_TOKENS,
    SharedScope,
    SharedTokens,
    sharing_problems,
)
from vllm_spec_plugin.proposers.suffix.config import SuffixConfig
from vllm_spec_plugin.schema.section import conflicts

if TYPE_CHECKING:
    from vllm_spec_plugin.proposers.base import Proposer

DEFAULT_WINDOW, _MAX_ORDER = 8192, 5
# Of drafts; n-gram tables drafted nearly all of these.
_MIN_PROBABILITY = 0.02


class NgramConfig(ProposerConfig):
    """Drafts as method suffix does; keys of the n-gram tables of earlier versions are checked and have no effect."""

    method: Literal["ngram"] = Field(description="The method of drafting.")
    mode: Literal["lookup", "frequency"] = Field(
        default="lookup",
        description="No effect, but that draft_sampling needs frequency: continuations of all matches are counted.",
    )
    min_order: int = Field(default=2, ge=1, le=16, description="Minimum n-gram length that must match, in tokens.")
    max_order: int = Field(default=5, ge=1, le=16, description="No effect: the longest match is used, of any length.")
    window: Annotated[int, Field(ge=64, le=1_048_576)] | None = Field(
        default_factory=lambda known: DEFAULT_WINDOW if known["mode"] == "frequency" else None,
        description="No effect: all of a request's tokens are counted; only with mode frequency.",
    )
    draft_sampling: Literal["greedy", "sample"] = Field(
        default="greedy",
        description="greedy drafts the most frequent token; sample draws in proportion to the counts, only with mode "
        "frequency.",
    )
    shared: bool = SHARED
    shared_tokens: SharedTokens = SHARED_TOKENS
    shared_scope: SharedScope = SHARED_SCOPE

    @model_validator(mode="after")
    def _keys_go_together(self) -> Self:
        problems = []
        if self.min_order > self.max_order:
            key, other = (
                ("min_order", "max_order") if "min_order" in self.model_fields_set else ("max_order", "min_order")
            )
            relation, bound = ("above", "at most") if key == "min_order" else ("below", "at least")
            origin = "" if other in self.model_fields_set else ", its default"
            text = f"got {getattr(self, key)}, which is {relation} proposer.{other} ({getattr(self, other)}{origin})"
            problems.append((key, f"{text}; allowed: {bound} proposer.{other}"))
        if self.mode == "lookup" and self.window is not None:
            text = f"got {self.window}, but proposer.mode is lookup, which has no window"
            problems.append(("window", f"{text}; allowed: leave it out, or set proposer.mode to frequency"))
        if self.mode == "frequency" and self.window is None:
            text = "got nothing (null), but proposer.mode is frequency; allowed: a whole number from 64 to 1048576"
            problems.append(("window", f"{text}, or leave it out for {DEFAULT_WINDOW}"))
        if self.mode == "lookup" and self.draft_sampling == "sample":
            text = "got the text 'sample', but proposer.mode is lookup, which has no counts to draw from"
            problems.append(("draft_sampling", f"{text}; allowed: greedy, or set proposer.mode to frequency"))
        problems += sharing_problems(self.shared, self.shared_tokens, self.shared_scope)
        conflicts(problems)
        return self

    @property
    def text_scope(self) -> SharedScope:
        """See `ProposerConfig`."""
        return self.shared_scope

    @classmethod
    def vllm_settings(cls, draft: str) -> dict[str, Any]:
        """vLLM's n-gram method, with this method's default n-gram lengths."""
        known = cls.model_fields
        return {"prompt_lookup_min": known["min_order"].default, "prompt_lookup_max": known["max_order"].default}

    def check(self, target: Target | None, num_tokens: int, where: str) -> list[str]:
        """See `ProposerConfig`."""
        changed = {"mode": self.mode != "lookup", "max_order": self.max_order != _MAX_ORDER}
        unused = [f"proposer.{key}" for key, is_changed in changed.items() if is_changed]
        return [f"{where}: {' and '.join(unused)}: no effect, as ngram drafts as suffix does"] if unused else []

    def create(self, num_tokens: int, vocab_size: int, engine: Any) -> "Proposer":
        """See `ProposerConfig`."""
        # Orders of mode frequency counted the token that follows, too.
        min_order = max(self.min_order - (self.mode == "frequency"), 1)
        shared = {key: getattr(self, key) for key in ("shared", "shared_tokens", "shared_scope")}
        suffix = SuffixConfig(
            method="suffix",
            min_order=min_order,
            min_probability=_MIN_PROBABILITY,
            draft_sampling=self.draft_sampling,
            **shared,
        )
        return suffix.create(num_tokens, vocab_size, engine)
