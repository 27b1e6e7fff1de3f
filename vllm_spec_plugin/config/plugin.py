"""A whole plugin.yaml, and its sections other than `proposer` and `draft_length`."""

import functools
import logging
from typing import Annotated, Any, Literal, Self, Union

from pydantic import Field, create_model, model_validator

from vllm_spec_plugin.config.cascade import CascadeConfig
from vllm_spec_plugin.config.draft_length import MAX_TOKENS, DraftLengthConfig, OptimalDraftLength
from vllm_spec_plugin.proposers.native.config import NativeConfig
from vllm_spec_plugin.proposers.registry import BUNDLED, BundledConfig, Kind
from vllm_spec_plugin.proposers.section import ProposerConfig, Target
from vllm_spec_plugin.schema.errors import ConfigError, Mistake, config_error, show, show_reason, show_source
from vllm_spec_plugin.schema.section import ChosenBy, Section, conflicts
from vllm_spec_plugin.version import __version__

logger = logging.getLogger("vllm.vllm_spec_plugin")

MAX_STREAM_TOKENS = 1024


class VerificationConfig(Section):
    """Settings of the verification of drafts."""

    lenience: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="1 is exact: outputs have the target's distribution. Below 1 is lossy: more drafts are accepted "
        "and the outputs change.",
    )
    method: Literal["coupled", "block", "token"] | None = Field(
        default=None,
        description="Verification of sampled draft chains. All are exact. coupled samples each token as without "
        "speculation, and accepts the drafts that are equal: seeded outputs do not depend on drafts; on vLLM's V2 "
        "runner only. block verifies all draft tokens of a request jointly and accepts more, token verifies one after "
        "the other.",
        json_schema_extra={"null": "coupled on V2, block on V1"},
    )

    @property
    def on_v1(self) -> Literal["block", "token"]:
        """The plugin's verification on vLLM's V1 runner."""
        assert self.method != "coupled", "refused at start"
        return self.method or ("token" if self.lenience < 1 else "block")

    @model_validator(mode="after")
    def _others_are_exact(self) -> Self:
        if self.method not in (None, "token") and self.lenience < 1:
            text = f"got {self.method}, but verification.lenience is {show(self.lenience)}"
            conflicts([("method", f"{text}; allowed: token, or lenience 1")])
        return self


class Limits(Section):
    """Limits of drafts, in the words of a request's own options."""

    spec: Literal["on", "off"] = Field(default="on", description="off is no drafts.")
    spec_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = Field(
        default=None,
        description="Maximum draft tokens per request and step, up to draft_length.tokens.",
        json_schema_extra={"null": "draft_length.tokens"},
    )

    @property
    def max_tokens(self) -> int | None:
        """Maximum draft tokens; 0 is none, None is `draft_length.tokens`."""
        return 0 if self.spec == "off" else self.spec_tokens


class PluginConfig(Section):
    """A whole plugin.yaml; `model_for` adds the proposers of other distributions."""

    proposer: Annotated[BundledConfig | CascadeConfig | NativeConfig, ChosenBy("method")] = Field(
        description="The proposer that drafts tokens."
    )
    draft_length: Annotated[DraftLengthConfig, ChosenBy("policy", default="optimal")] = Field(
        default=OptimalDraftLength(), description="Numbers of tokens to draft."
    )
    verification: VerificationConfig = Field(default=VerificationConfig(), description="Verification of drafts.")
    stream_granularity: Literal["free", "token", "fixed"] = Field(
        default="free",
        description="Sizes of streamed groups of tokens: free sends each step's tokens at once; token sends them one "
        "by one, as without speculation; fixed sends groups of stream_tokens.",
    )
    stream_tokens: Annotated[int, Field(ge=2, le=MAX_STREAM_TOKENS)] | None = Field(
        default_factory=lambda known: (
            known["draft_length"].tokens + 1 if known["stream_granularity"] == "fixed" else None
        ),
        description="Tokens per group; only with stream_granularity fixed.",
        json_schema_extra={"allowed": f"a whole number from draft_length.tokens + 1 to {MAX_STREAM_TOKENS}"},
    )
    requests: Limits = Field(
        default=Limits(), description="Limits of requests that state neither spec nor spec_tokens themselves."
    )
    switch: Limits = Field(
        default=Limits(), description="Limits of all requests, read again while the server runs if the file changes."
    )

    @property
    def proposers(self) -> tuple[ProposerConfig, ...]:
        """The proposers in their order: the members of a cascade, or the only one."""
        return self.proposer.members

    @property
    def summary(self) -> dict[str, str]:
        """Words the configuration: the labels of the info metric, and the line that is logged at start."""
        exact = self.verification.lenience == 1
        return {
            "version": __version__,
            "methods": " > ".join(proposer.method for proposer in self.proposers),
            "policy": self.draft_length.policy,
            "tokens": str(self.draft_length.tokens),
            "exact": "true" if exact else "false",
            "lenience": f"{self.verification.lenience:g}",
        }

    @property
    def max_draft_tokens(self) -> int:
        """Maximum draft tokens per request and step by the operator's switch; 0 is off."""
        own = self.switch.max_tokens
        return self.draft_length.tokens if own is None else own

    @property
    def is_native(self) -> bool:
        """Whether vLLM itself drafts and verifies."""
        return any(proposer.is_native for proposer in self.proposers)

    @property
    def native(self) -> NativeConfig | None:
        """The section of vLLM's drafter; None without one."""
        return next((proposer for proposer in self.proposers if isinstance(proposer, NativeConfig)), None)

    @property
    def verified_on_v2(self) -> Literal["coupled", "block", "token"]:
        """The verification on vLLM's V2 runner."""
        return self.verification.method or (self.native.verification if self.native else None) or "coupled"

    @property
    def shares_noise_on_v2(self) -> bool:
        """Whether on vLLM's V2 runner drafts are sampled with the noise of verification."""
        *_, last = self.proposers
        return self.verified_on_v2 == "coupled" and last.may_share_noise

    @property
    def is_token_only(self) -> bool:
        """Whether all proposers draft from token ids alone."""
        return all(proposer.is_token_only for proposer in self.proposers)

    @property
    def kv_proposer(self) -> int | None:
        """The index of the proposer whose drafts need slots in the KV cache; None if there is none."""
        return next((i for i, proposer in enumerate(self.proposers) if proposer.keeps_kv), None)

    @property
    def drafts_trees(self) -> bool:
        """Whether a draft of any proposer may have branches."""
        return any(proposer.drafts_trees for proposer in self.proposers)

    @property
    def text_scope(self) -> Literal["salt", "global"] | None:
        """See `ProposerConfig`; of the proposer that drafts from finished responses, if there is one."""
        return next((proposer.text_scope for proposer in self.proposers if proposer.text_scope), None)

    def check_proposers(self, target: Target | None, source: str) -> None:
        """Checks whether the proposers can draft for a target; logs warnings.

        Args:
            target: the served model; None checks only what needs no target.
            source: name of the configuration file, for messages.

        Raises:
            ConfigError: a proposer cannot draft for it.
        """
        for proposer in self.proposers:
            where = self.where(proposer, source)
            try:
                warnings = proposer.check(target, self.draft_length.tokens, where)
            except ConfigError:
                raise
            except Exception as error:
                if type(proposer) in BUNDLED:
                    raise
                text = f"checking it failed: {type(error).__name__}: {show_reason(error)}"
                raise config_error(show_source(where), [Mistake("proposer", text)]) from error
            for warning in warnings:
                logger.warning("%s", warning)

    def where(self, proposer: ProposerConfig, source: str) -> str:
        """Names a proposer's section of the file `source` in messages."""
        return source if proposer is self.proposer else f"{source}: the cascade's {proposer.method}"

    @model_validator(mode="after")
    def _vllm_verifies_what_it_drafts(self) -> Self:
        method, native = self.verification.method, self.native
        if native is None:
            return self
        if self.verification.lenience < 1:
            text = f"got {show(self.verification.lenience)}, but vLLM's drafters are verified exactly; allowed: 1"
            conflicts([("verification.lenience", text)])
        if method and (own := native.config.get("rejection_sample_method")):
            text = f"got {method}, but proposer.config.rejection_sample_method is {show(own)}; allowed: one of the two"
            conflicts([("verification.method", text)])
        if method == "coupled" and native.draft_sample_method != "greedy":
            text = f"got coupled, but proposer.config.draft_sample_method is {show(native.draft_sample_method)}"
            conflicts([("verification.method", f"{text}; allowed: block or token, or leave that key out")])
        return self

    @model_validator(mode="after")
    def _sections_go_together(self) -> Self:
        if self.verification.method == "coupled":
            for proposer in self.proposers:
                if getattr(proposer, "draft_sampling", None) == "probabilistic":
                    text = f"got coupled, but {proposer.method} has draft_sampling probabilistic"
                    allowed = "allowed: block or token, or leave draft_sampling out"
                    conflicts([("verification.method", f"{text}; {allowed}")])
        if self.verification.lenience < 1 and self.drafts_trees:
            text = f"got {show(self.verification.lenience)}, but the proposer drafts trees, which are verified exactly"
            conflicts([("verification.lenience", f"{text}; allowed: 1")])
        if self.drafts_trees and self.kv_proposer is not None:
            text = f"got {self.proposers[self.kv_proposer].method}, which keeps a KV cache, together with a tree"
            conflicts([("proposer.method", f"{text}; allowed: chains, or one of the two")])
        for i, proposer in enumerate(self.proposers):
            tree = proposer.fixed_tree
            if tree is not None and tree.num_nodes > self.draft_length.tokens:
                section = "proposer" if proposer is self.proposer else f"proposer.proposers[{i}]"
                text = f"got {self.draft_length.tokens}, but {section}.{tree.key} has {tree.num_nodes} tokens"
                conflicts([("draft_length.tokens", f"{text}; allowed: from {tree.num_nodes} to {MAX_TOKENS}")])
        return self

    @model_validator(mode="after")
    def _limits_are_below_the_maximum(self) -> Self:
        most = self.draft_length.tokens
        for name, limits in (("requests", self.requests), ("switch", self.switch)):
            if (given := limits.spec_tokens) is not None and given > most:
                text = f"got {given}, but draft_length.tokens is {most}; allowed: a whole number from 1 to {most}"
                conflicts([(f"{name}.spec_tokens", f"{text}, or leave it out")])
        return self

    @model_validator(mode="after")
    def _groups_hold_a_step(self) -> Self:
        given, minimum = self.stream_tokens, self.draft_length.tokens + 1
        if self.stream_granularity != "fixed":
            if given is not None:
                text = f"got {given}, but stream_granularity is {self.stream_granularity}, so tokens are not grouped"
                allowed = "leave it out, or set stream_granularity to fixed"
                conflicts([("stream_tokens", f"{text}; allowed: {allowed}")])
            return self
        allowed = f"a whole number from {minimum} to {MAX_STREAM_TOKENS}, or leave it out for {minimum}"
        if given is None:
            text = "got nothing (null), but stream_granularity is fixed"
            conflicts([("stream_tokens", f"{text}; allowed: {allowed}")])
        elif given < minimum:
            text = f"got {given}, but with draft_length.tokens {minimum - 1} a step may output {minimum} tokens"
            conflicts([("stream_tokens", f"{text}; allowed: {allowed}")])
        return self


@functools.cache
def model_for(kinds: tuple[Kind, ...]) -> type[PluginConfig]:
    """The pydantic model of a plugin.yaml that may name these methods."""
    if kinds == BUNDLED:
        return PluginConfig
    members: Any = Annotated[Union[(*kinds, NativeConfig)], ChosenBy("method")]
    listed = CascadeConfig.model_fields["proposers"]
    cascade = create_model(
        "CascadeConfig", __base__=CascadeConfig, __doc__=CascadeConfig.__doc__, proposers=(tuple[members, ...], listed)
    )
    chosen: Any = Annotated[Union[(*kinds, cascade, NativeConfig)], ChosenBy("method")]
    return create_model(
        "PluginConfig",
        __base__=PluginConfig,
        __doc__=PluginConfig.__doc__,
        proposer=(chosen, PluginConfig.model_fields["proposer"]),
    )
