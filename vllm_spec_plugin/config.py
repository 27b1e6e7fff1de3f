"""The configuration file: its keys, their bounds and how they go together. Imports no vLLM."""

import itertools
import math
import operator
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainValidator,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from vllm_spec_plugin.config_errors import ConfigError, Mistake, config_error, mistakes_in, show, show_source
from vllm_spec_plugin.safe_yaml import parse_text, read_text

if TYPE_CHECKING:
    from vllm_spec_plugin.proposers.node_order import NodeOrder

__all__ = ["ConfigError", "PluginConfig", "load_config", "parse_config"]

DEFAULT_WINDOW = 8192
DEFAULT_SHARED_TOKENS = 1_000_000
# Of a tree: tokens one after the other, and tokens that may follow the same one.
MAX_DEPTH = 16
MAX_SIBLINGS = 64
MAX_TOKENS = 64
MAX_STREAM_TOKENS = 1024
# Of a cascade.
MAX_PROPOSERS = 3


@dataclass(frozen=True)
class ChosenBy:
    """Marks a section whose model is chosen by one of its keys.

    Pydantic's own discriminator refuses a union of one, so adding a second model would change code
    everywhere instead of one line.
    """

    key: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """A union of the models in `source`, told apart by the one word their `key` takes."""
        models = get_args(source) or (source,)
        choices = {
            get_args(model.model_fields[self.key].annotation)[0]: handler.generate_schema(model) for model in models
        }
        return core_schema.tagged_union_schema(choices, discriminator=self.key)


class Section(BaseModel):
    """What all sections share: no unknown keys, no conversions, no changes afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def conflicts(problems: list[tuple[str, str]]) -> None:
    """Refuses keys that do not go together.

    Args:
        problems: the key to change and what to say of it; none is fine.
    """
    if problems:
        text = "; ".join(f"{key}: {text}" for key, text in problems)
        raise PydanticCustomError("conflict", text, {"problems": problems})


class Proposing(Section):
    """What every method says of itself, cascades apart.

    Attributes:
        keeps_kv: whether the drafts need slots in the KV cache.
        uses_hidden_states: whether it drafts from the target's last hidden states.
    """

    keeps_kv: ClassVar[bool] = False
    uses_hidden_states: ClassVar[bool] = False

    method: str

    @property
    def drafts_trees(self) -> bool:
        """Whether a draft may have branches."""
        return False

    def tree_size(self, most: int) -> tuple[int, int]:
        """Tokens of a tree, and most of them one after the other, where it has `most` tokens at most."""
        return most, most

    def tree_order(self, most: int) -> tuple[int, ...]:
        """Orders the nodes of a draft of `most` tokens by path probability; a turn of n tokens drafts the first n.

        Returns:
            Each node's parent in that order, which comes before it; -1 where that is the end of the text.
        """
        return tuple(range(-1, most - 1))


def _per_place(value: object, allowed: range) -> tuple[int, ...]:
    """A list of one whole number per place of a draft; ValueError if it is none."""
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MAX_DEPTH:
        raise ValueError
    if any(type(number) is not int or number not in allowed for number in value):
        raise ValueError
    return tuple(value)


def _branches(value: object) -> tuple[int, ...] | None:
    return None if value is None else _per_place(value, range(1, MAX_SIBLINGS + 1))


def _tree(value: object) -> Literal["auto"] | tuple[tuple[int, ...], ...] | None:
    if value is None:
        return None
    if value == "auto":
        return "auto"
    if not isinstance(value, list | tuple) or not value:
        raise ValueError
    return tuple(_per_place(path, range(MAX_SIBLINGS)) for path in value)


class NgramConfig(Proposing):
    """Drafts from the request's own text: what followed the last time the text ended like this."""

    method: Literal["ngram"] = Field(description="How drafts are made.")
    mode: Literal["lookup", "frequency"] = Field(
        default="lookup",
        description="lookup copies what followed the latest match; frequency counts what followed all of them.",
    )
    min_order: int = Field(default=2, ge=1, le=16, description="Fewest tokens that must match.")
    max_order: int = Field(default=5, ge=1, le=16, description="Most tokens that are matched; longer matches win.")
    window: Annotated[int, Field(ge=64, le=1_048_576)] | None = Field(
        default_factory=lambda known: DEFAULT_WINDOW if known["mode"] == "frequency" else None,
        description="How many of the latest tokens are counted; mode frequency only.",
    )
    draft_sampling: Literal["greedy", "sample"] = Field(
        default="greedy",
        description="greedy drafts the likeliest token; sample draws from the counts, mode frequency only.",
    )
    shared: bool = Field(
        default=False,
        description="Drafts also from texts that have ended, of requests with the same cache_salt.",
        json_schema_extra={"allowed": "true or false"},
    )
    shared_tokens: Annotated[int, Field(ge=1024, le=10**9)] | None = Field(
        default_factory=lambda known: DEFAULT_SHARED_TOKENS if known["shared"] else None,
        description="Most tokens of such texts that are kept, in all; shared only.",
    )
    shared_scope: Literal["salt", "global"] | None = Field(
        default_factory=lambda known: "salt" if known["shared"] else None,
        description="Requests without a cache_salt: salt keeps each one private, global lets them draft from each "
        "other's texts; shared only.",
    )

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
        problems += self._sharing_problems()
        conflicts(problems)
        return self

    def _sharing_problems(self) -> list[tuple[str, str]]:
        given = {"shared_tokens": self.shared_tokens, "shared_scope": self.shared_scope}
        if not self.shared:
            text = "but proposer.shared is false, so no texts are kept"
            allowed = "leave it out, or set proposer.shared to true"
            return [
                (key, f"got {show(value)}, {text}; allowed: {allowed}")
                for key, value in given.items()
                if value is not None
            ]
        allowed_by = {
            "shared_tokens": f"a whole number from 1024 to 1000000000, or leave it out for {DEFAULT_SHARED_TOKENS}",
            "shared_scope": "salt, global, or leave it out for salt",
        }
        text = "got nothing (null), but proposer.shared is true"
        return [(key, f"{text}; allowed: {allowed_by[key]}") for key, value in given.items() if value is None]


class DraftModelConfig(Proposing):
    """Drafts from a small model that has the target's vocabulary."""

    keeps_kv: ClassVar[bool] = True

    method: Literal["draft_model"] = Field(description="How drafts are made.")
    model: str = Field(
        min_length=1,
        description="The draft: a folder or a name on the Hugging Face hub. A relative path means the folder of that "
        "name beside the configuration file if there is one, else one in the working directory.",
        json_schema_extra={"allowed": "a model's folder or its name on the Hugging Face hub"},
    )
    draft_sampling: Literal["probabilistic", "greedy"] = Field(
        default="probabilistic",
        description="probabilistic draws drafts from the draft's distribution; greedy takes its likeliest token.",
    )
    draft_temperature: Annotated[float, Field(gt=0, le=10)] | None = Field(
        default=None,
        description="Temperature that drafts of sampled requests are drawn at; null is each request's own.",
        json_schema_extra={"null": "each request's own"},
    )
    min_confidence: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Drafting of a request ends early where the draft gives its token less probability; 0 is off.",
        json_schema_extra={"zero": "off"},
    )
    dtype: Literal["auto", "float32", "float16", "bfloat16"] | None = Field(
        default=None,
        description="Number format of the draft's weights; null is the target's, auto the checkpoint's own.",
        json_schema_extra={"null": "the target's"},
    )
    quantization: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="How the draft's weights are quantised, in vLLM's words; null is as the checkpoint says.",
        json_schema_extra={"allowed": "a name that vLLM's --quantization takes", "null": "as the checkpoint says"},
    )
    catch_up_tokens: int = Field(
        default=2048,
        ge=1,
        description="Most tokens per step that the draft computes to catch up with prompts and gaps.",
    )
    branches: Annotated[Any, PlainValidator(_branches)] = Field(
        default=None,
        description="Several drafts at once, merged into a tree: how many tokens follow each one, place by place; "
        "null is one chain.",
        json_schema_extra={
            "allowed": f"a list of 1 to {MAX_DEPTH} whole numbers from 1 to {MAX_SIBLINGS} such as [3, 1, 1], or null",
            "null": "one chain",
        },
    )

    @property
    def drafts_trees(self) -> bool:
        """Whether a draft may have branches."""
        return self.branches is not None

    def tree_size(self, most: int) -> tuple[int, int]:
        """Tokens of a tree, and most of them one after the other."""
        return self.num_nodes, len(self.branches or ())

    def tree_order(self, most: int) -> tuple[int, ...]:
        """See `Proposing`."""
        return super().tree_order(most) if self.branches is None else self.node_order.parents

    @property
    def node_order(self) -> "NodeOrder":
        """The nodes of the branches by path probability."""
        from vllm_spec_plugin.proposers.node_order import NodeOrder

        return NodeOrder.of_branches(self.branches or ())

    @property
    def num_branches(self) -> int:
        """How many chains the draft model follows per request."""
        return math.prod(self.branches or ())

    @property
    def num_nodes(self) -> int:
        """Most tokens that the branches have together."""
        return sum(itertools.accumulate(self.branches or (), operator.mul))

    @model_validator(mode="after")
    def _keys_go_together(self) -> Self:
        problems = []
        if self.draft_temperature is not None and self.draft_sampling == "greedy":
            text = f"got {show(self.draft_temperature)}, but proposer.draft_sampling is greedy, which draws nothing"
            allowed = "leave it out, or set proposer.draft_sampling to probabilistic"
            problems.append(("draft_temperature", f"{text}; allowed: {allowed}"))
        if self.branches is not None and self.min_confidence:
            text = f"got {show(self.min_confidence)}, but proposer.branches fixes the drafts' shape"
            problems.append(("min_confidence", f"{text}; allowed: 0, or leave proposer.branches out"))
        conflicts(problems)
        return self


class MedusaConfig(Proposing):
    """Drafts from heads on the target's last hidden state, one head per token ahead."""

    uses_hidden_states: ClassVar[bool] = True

    method: Literal["medusa"] = Field(description="How drafts are made.")
    model: str = Field(
        min_length=1,
        description="The heads: a folder or a name on the Hugging Face hub. A relative path means the folder of that "
        "name beside the configuration file if there is one, else one in the working directory.",
        json_schema_extra={"allowed": "a folder of Medusa heads or its name on the Hugging Face hub"},
    )
    draft_sampling: Literal["greedy", "probabilistic"] = Field(
        default="greedy",
        description="greedy takes each head's likeliest tokens; probabilistic draws them from its distribution.",
    )
    tree: Annotated[Any, PlainValidator(_tree)] = Field(
        default=None,
        description="Which of the heads' tokens are verified together: null is a chain of the likeliest; auto is the "
        "best tree of draft_length.tokens nodes by the heads' measured accuracies; or a list of paths of ranks.",
        json_schema_extra={
            "allowed": f"auto, null, or a list of paths such as [[0], [1], [0, 0]]: each a list of 1 to {MAX_DEPTH} "
            f"ranks from 0 to {MAX_SIBLINGS - 1}",
            "null": "a chain",
        },
    )

    @property
    def drafts_trees(self) -> bool:
        """Whether a draft may have branches."""
        return self.tree is not None

    def tree_size(self, most: int) -> tuple[int, int]:
        """Tokens of a tree, and about how many of them are one after the other."""
        if isinstance(self.tree, tuple):
            return len(self.tree), max(map(len, self.tree))
        return most, min(most, 4)

    def tree_order(self, most: int) -> tuple[int, ...]:
        """See `Proposing`; reads the heads' measured accuracies where they decide."""
        return super().tree_order(most) if self.tree is None else self.node_order(most).parents

    def node_order(self, most: int) -> "NodeOrder":
        """The nodes of a tree of at most `most` tokens by path probability."""
        from vllm_spec_plugin.proposers.medusa.checkpoint import read_heads_config
        from vllm_spec_plugin.proposers.medusa.shape import node_order

        draws = self.draft_sampling == "probabilistic"
        return node_order(self.tree, most, read_heads_config(self.model), draws=draws)

    def num_heads(self, num_tokens: int) -> int | None:
        """How many heads drafts of at most `num_tokens` tokens need; None if any number will do."""
        if self.tree == "auto":
            return None
        return num_tokens if self.tree is None else max(map(len, self.tree))

    @model_validator(mode="after")
    def _is_a_tree(self) -> Self:
        if isinstance(self.tree, tuple):
            paths = set(self.tree)
            orphan = next((path for path in self.tree if len(path) > 1 and path[:-1] not in paths), None)
            if len(paths) < len(self.tree):
                twice = next(path for path in self.tree if self.tree.count(path) > 1)
                conflicts([("tree", f"path {list(twice)} is there twice; allowed: each path once")])
            if orphan is not None:
                text = f"path {list(orphan)} has no parent; allowed: add {list(orphan[:-1])}, or leave it out"
                conflicts([("tree", text)])
        return self


class DraftLength(Section):
    """What every policy has."""

    tokens: int = Field(default=4, ge=1, le=MAX_TOKENS, description="Most tokens drafted per request and step.")


class FixedDraftLength(DraftLength):
    """The same number of draft tokens in every step."""

    policy: Literal["fixed"] = Field(description="How many tokens to draft in a step is decided like this.")


class HeuristicDraftLength(DraftLength):
    """Longer after drafts that were wholly accepted, shorter after others, request by request."""

    policy: Literal["heuristic"] = Field(description="How many tokens to draft in a step is decided like this.")


class OptimalDraftLength(DraftLength):
    """What pays most by measured acceptance and measured time, request by request, none included."""

    policy: Literal["optimal"] = Field(description="How many tokens to draft in a step is decided like this.")
    half_life: float = Field(
        default=64.0,
        ge=8,
        le=65_536,
        description="Output tokens of a request after which what was seen of its drafts counts half.",
    )
    explore: float = Field(
        default=0.01,
        ge=0,
        le=0.2,
        description="Share of the time that may go into trying what does not look best; 0 is never.",
        json_schema_extra={"zero": "never"},
    )


class VerificationConfig(Section):
    """How drafts are accepted."""

    lenience: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="1 keeps the target's distribution exactly; below 1 accepts more drafts and changes the output.",
    )


SingleConfig = NgramConfig | DraftModelConfig | MedusaConfig


class CascadeConfig(Section):
    """Several proposers: those before others are asked first, or whoever pays most where the policy is optimal."""

    method: Literal["cascade"] = Field(description="How drafts are made.")
    proposers: tuple[Annotated[SingleConfig, ChosenBy("method")], ...] = Field(
        strict=False,
        min_length=2,
        max_length=MAX_PROPOSERS,
        description="Who drafts: the first has the first turn, the next one where that has no guess; each is a "
        "section as proposer is, each method at most once.",
        json_schema_extra={"allowed": f"a list of 2 to {MAX_PROPOSERS} proposers, each with its method"},
    )

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        methods = [proposer.method for proposer in self.proposers]
        for place, method in enumerate(methods):
            if method in methods[:place]:
                text = f"got {show(method)}, which is there already; allowed: each method once"
                conflicts([(f"proposers[{place}].method", text)])
        return self


# A new method or policy is a model above and its name here.
ProposerConfig = NgramConfig | DraftModelConfig | MedusaConfig | CascadeConfig
DraftLengthConfig = FixedDraftLength | HeuristicDraftLength | OptimalDraftLength


class PluginConfig(Section):
    """A whole plugin.yaml."""

    proposer: Annotated[ProposerConfig, ChosenBy("method")] = Field(description="Who guesses the next tokens.")
    draft_length: Annotated[DraftLengthConfig, ChosenBy("policy")] = Field(
        default=OptimalDraftLength(policy="optimal"), description="How many tokens are guessed."
    )
    verification: VerificationConfig = Field(default=VerificationConfig(), description="Which guesses are kept.")
    stream_granularity: Literal["free", "fixed"] = Field(
        default="free",
        description="How tokens leave: free is after every step, as many as it gave; fixed is in groups of one size.",
    )
    stream_tokens: Annotated[int, Field(ge=2, le=MAX_STREAM_TOKENS)] | None = Field(
        default_factory=lambda known: (
            known["draft_length"].tokens + 1 if known["stream_granularity"] == "fixed" else None
        ),
        description="Tokens of a group; stream_granularity fixed only.",
        json_schema_extra={"allowed": f"a whole number from draft_length.tokens + 1 to {MAX_STREAM_TOKENS}"},
    )

    @property
    def proposers(self) -> tuple[SingleConfig, ...]:
        """Who drafts, in their order: those of a cascade, or the only one."""
        return self.proposer.proposers if isinstance(self.proposer, CascadeConfig) else (self.proposer,)

    @property
    def kv_proposer(self) -> int | None:
        """The place of the proposer whose drafts need slots in the KV cache; None if there is none."""
        return next((place for place, proposer in enumerate(self.proposers) if proposer.keeps_kv), None)

    @property
    def drafts_trees(self) -> bool:
        """Whether a draft of any proposer may have branches."""
        return any(proposer.drafts_trees for proposer in self.proposers)

    def where(self, proposer: SingleConfig, source: str) -> str:
        """What to call a proposer's section of the file `source` in messages."""
        return source if proposer is self.proposer else f"{source}: the cascade's {proposer.method}"

    @model_validator(mode="after")
    def _sections_go_together(self) -> Self:
        if self.verification.lenience < 1 and self.drafts_trees:
            text = f"got {show(self.verification.lenience)}, but the proposer drafts trees, which are verified exactly"
            conflicts([("verification.lenience", f"{text}; allowed: 1")])
        for place, proposer in enumerate(self.proposers):
            size, key = 0, ""
            if isinstance(proposer, DraftModelConfig):
                size, key = proposer.num_nodes, "branches"
            elif isinstance(proposer, MedusaConfig) and isinstance(proposer.tree, tuple):
                size, key = len(proposer.tree), "tree"
            if size > self.draft_length.tokens:
                section = f"proposer.proposers[{place}]" if isinstance(self.proposer, CascadeConfig) else "proposer"
                text = f"got {self.draft_length.tokens}, but {section}.{key} has {size} tokens"
                conflicts([("draft_length.tokens", f"{text}; allowed: from {size} to {MAX_TOKENS}")])
        return self

    @model_validator(mode="after")
    def _groups_hold_a_step(self) -> Self:
        given, least = self.stream_tokens, self.draft_length.tokens + 1
        if self.stream_granularity == "free":
            if given is not None:
                text = f"got {given}, but stream_granularity is free, so tokens are not grouped"
                allowed = "leave it out, or set stream_granularity to fixed"
                conflicts([("stream_tokens", f"{text}; allowed: {allowed}")])
            return self
        allowed = f"a whole number from {least} to {MAX_STREAM_TOKENS}, or leave it out for {least}"
        if given is None:
            text = "got nothing (null), but stream_granularity is fixed"
            conflicts([("stream_tokens", f"{text}; allowed: {allowed}")])
        elif given < least:
            text = f"got {given}, but with draft_length.tokens {least - 1} a step may give {least} tokens"
            conflicts([("stream_tokens", f"{text}; allowed: {allowed}")])
        return self


def parse_config(data: object, source: str) -> PluginConfig:
    """Checks a configuration that has been read already.

    Args:
        data: nested dicts, as YAML or JSON give them.
        source: what to call it in messages.

    Raises:
        ConfigError: lists every mistake.
    """
    config, mistakes = _check(data)
    if config is None:
        raise config_error(show_source(source), mistakes)
    return config


def load_config(path: str | os.PathLike[str]) -> PluginConfig:
    """Reads and checks a configuration file.

    The relative path of a draft model, or of heads, becomes an absolute one where it names a folder beside the file.

    Raises:
        ConfigError: the file cannot be read, or lists every mistake in it.
    """
    source = show_source(str(path))
    document = parse_text(read_text(Path(path), source), source)
    config, mistakes = _check(document.data)
    if config is None or document.mistakes:
        raise config_error(source, document.mistakes + mistakes)
    return _from_anywhere(config, Path(path).parent)


def _from_anywhere(config: PluginConfig, folder: Path) -> PluginConfig:
    """Names models that draft and lie relative to `folder`, the file's, so that every process finds them."""
    proposer = config.proposer
    if isinstance(proposer, CascadeConfig):
        proposers = tuple(_beside(member, folder) for member in proposer.proposers)
        return config.model_copy(update={"proposer": proposer.model_copy(update={"proposers": proposers})})
    return config.model_copy(update={"proposer": _beside(proposer, folder)})


def _beside(proposer: SingleConfig, folder: Path) -> SingleConfig:
    if not isinstance(proposer, DraftModelConfig | MedusaConfig) or Path(proposer.model).is_absolute():
        return proposer
    try:
        beside = (folder / proposer.model).resolve()
        found = beside.is_dir()
    except (OSError, ValueError):  # no name a folder could have
        found = False
    return proposer.model_copy(update={"model": str(beside)}) if found else proposer


def _check(data: object) -> tuple[PluginConfig | None, list[Mistake]]:
    if not isinstance(data, dict):
        given = "it is empty" if data is None else f"got {show(data)}"
        keys = ", ".join(PluginConfig.model_fields)
        return None, [Mistake("", f"{given}; allowed: a YAML mapping with the keys {keys} (proposer is required)")]
    try:
        return PluginConfig.model_validate(data), []
    except ValidationError:
        return None, mistakes_in(data, PluginConfig)
