"""Arms of a benchmark: what `--arm` may say, their names for people, and which of them share an engine."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from vllm_spec_plugin.config import MAX_TOKENS, PluginConfig, load_config, parse_config
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.proposers.native.config import METHOD as NATIVE
from vllm_spec_plugin.proposers.registry import BUNDLED, method_of
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.bench.engine_args import ArmPlan, plan_file
from vllm_spec_tools.bench.input import speculative_json, whole_numbers

NONE, OPTIMAL = "no speculation", "optimal"
STOCK_METHODS = {method_of(kind): kind for kind in sorted(BUNDLED, key=method_of) if kind.vllm_settings("") is not None}
_VLLM = "vLLM's "
_STOCK_TOKENS, _MOST_STOCK_TOKENS = 4, 32
_SHORT = {"num_speculative_tokens_per_batch_size": "by batch size"}
_STOCK_WORDS = " or ".join(f"stock:{method}" for method in STOCK_METHODS)
_EXAMPLE = 'stock:{"method": "ngram", "num_speculative_tokens": 4}'
ALLOWED = (
    f"none, optimal, fixed:K,K,..., {_STOCK_WORDS} (also with :K), vLLM's JSON as in {_EXAMPLE}, "
    "vllm:JSON (the same drafter, with draft lengths of the plugin's), a plugin.yaml, or off:plugin.yaml"
)


class Choice(NamedTuple):
    """An arm as given on the command line.

    Attributes:
        kind: "none"; "optimal" and "fixed": the plugin; "stock": vLLM's own speculation; "native": the same drafter
            with method vllm; "file": a plugin.yaml; "off": the same with drafts off in every request.
        tokens: K of "fixed", where 0 is the plugin with drafts off.
        detail: JSON of "stock" and "native", path of "file" and "off".
    """

    name: str
    kind: Literal["none", "optimal", "fixed", "stock", "native", "file", "off"]
    tokens: int = 0
    detail: str = ""


@dataclass(frozen=True)
class PlannedArm:
    """An arm of a comparison.

    Attributes:
        plan: its engine. Arms whose plans are equal share one: engines cost memory, and a minute to start.
        spec_tokens: maximum draft tokens in each request; 0 is off, None the engine's own.
        is_fixed: whether it is one of those that the best fixed draft length is chosen from.
    """

    plan: ArmPlan
    spec_tokens: int | None = None
    is_fixed: bool = False


class Base(NamedTuple):
    """The proposer of the plugin's arms.

    Attributes:
        config: of the arms `optimal` and `fixed`, which replace its draft_length.
        source: where it is from, for messages.
        draft: weights for vLLM's own speculation, a folder's absolute path or a hub name; None if none are named.
    """

    config: PluginConfig
    source: str
    draft: str | None

    def weights(self, method: str) -> str:
        """Returns the draft model or head of vLLM's own `method`: the named one, the proposer's, or the bundled one."""
        own = (one.draft_weights.model for one in self.config.proposers if one.method == method and one.draft_weights)
        return self.draft or next(own, str(model_path("eagle3" if method == "eagle3" else "draft")))


def base_of(proposer: Path | None, draft: str | None) -> Base:
    """Chooses the proposer of the plugin's arms, by the command's options.

    Args:
        proposer: path of a plugin.yaml; None is a draft model that drafts greedily.
        draft: folder or hub name of the draft model; None is the bundled one. Beside `proposer` only vLLM's own
            speculation takes it.

    Raises:
        ConfigError: the plugin.yaml is not there, or has a mistake.
    """
    if proposer is not None:
        return Base(load_config(proposer), str(proposer), draft)
    section = {"method": "draft_model", "model": draft or str(model_path("draft")), "draft_sampling": "greedy"}
    return Base(parse_config({"proposer": section}, "the draft model"), "the draft model", draft)


def choose_arms(given: Sequence[str]) -> tuple[Choice, ...]:
    """Returns the arms that words stand for, once each, in order; `none` comes first, whether it is named or not.

    Raises:
        UserError: a word says nothing.
    """
    return tuple(dict.fromkeys(choice for word in ("none", *given) for choice in _choices(word)))


def is_stock(name: str) -> bool:
    """Whether an arm of that name is vLLM's own speculation."""
    return name.startswith(_VLLM)


def plan_arms(choices: Sequence[Choice], base: Base, optimal_tokens: int, folder: Path) -> dict[str, PlannedArm]:
    """Returns the arms by name, in order.

    Args:
        optimal_tokens: most that `optimal` drafts.
        folder: where files may be written that the engines can read.

    Raises:
        ConfigError: a plugin.yaml is not there, has a mistake, or goes with none of the draft lengths.
    """

    def written(policy: str, tokens: int) -> ArmPlan:
        sections = base.config.model_dump(mode="json") | {"draft_length": {"policy": policy, "tokens": tokens}}
        parse_config(sections, f"{base.source} with draft_length {policy}, {tokens} tokens")
        path = folder / f"{policy}-{tokens}.yaml"
        path.write_text(yaml.safe_dump(sections), encoding="utf-8")
        return plan_file(path)

    longest = max((choice.tokens for choice in choices if choice.kind == "fixed"), default=0)
    # Requests with `spec_tokens` are drafted for as by an engine of that K.
    is_shared = base.config.text_scope is None and not base.config.drafts_trees

    def completed(given: dict[str, Any]) -> dict[str, Any]:
        kind = STOCK_METHODS.get(given["method"])
        return ((kind.vllm_settings(base.weights(given["method"])) if kind else None) or {}) | given

    def planned(choice: Choice) -> PlannedArm:
        tokens = choice.tokens
        match choice.kind:
            case "none":
                return PlannedArm(ArmPlan(None))
            case "optimal":
                return PlannedArm(written("optimal", optimal_tokens))
            case "fixed" if tokens == 0 or is_shared:
                plan = written("fixed", longest or base.config.draft_length.tokens)
                return PlannedArm(plan, tokens, is_fixed=tokens > 0)
            case "fixed":
                return PlannedArm(written("fixed", tokens), is_fixed=True)
            case "stock":
                return PlannedArm(ArmPlan(completed(json.loads(choice.detail))))
            case "native":
                given = completed(json.loads(choice.detail))
                tokens = given.pop("num_speculative_tokens", optimal_tokens)
                sections = {
                    "proposer": {"method": NATIVE, "config": given},
                    "draft_length": {"policy": "optimal", "tokens": tokens},
                }
                path = folder / f"native-{len(list(folder.iterdir()))}.yaml"
                path.write_text(yaml.safe_dump(sections), encoding="utf-8")
                return PlannedArm(plan_file(path))
            case "file" | "off":
                return PlannedArm(plan_file(Path(choice.detail)), 0 if choice.kind == "off" else None)

    return {choice.name: planned(choice) for choice in choices}


def engines(arms: Mapping[str, PlannedArm]) -> dict[str, list[str]]:
    """Returns the arms by engine, each engine called after its arms."""
    groups: dict[str, list[str]] = {}
    for name, arm in arms.items():
        groups.setdefault(repr(arm.plan), []).append(name)
    return {", ".join(names): names for names in groups.values()}


def _choices(word: str) -> Iterator[Choice]:
    kind, colon, rest = word.partition(":")
    if word == "none":
        yield Choice(NONE, "none")
    elif word == OPTIMAL:
        yield Choice(OPTIMAL, "optimal")
    elif kind == "fixed" and colon:
        for tokens in whole_numbers(f"--arm {word}", rest, MAX_TOKENS, 0):
            yield Choice(f"fixed K = {tokens}", "fixed", tokens)
    elif kind in ("stock", "vllm") and rest.lstrip().startswith("{"):
        yield _stock(word, rest, is_native=kind == "vllm")
    elif kind == "stock" and colon:
        method, colon, lengths = rest.partition(":")
        if method not in STOCK_METHODS:
            raise UserError(f"--arm {word}: got {method!r}; allowed: {', '.join(STOCK_METHODS)}")
        for tokens in whole_numbers(f"--arm {word}", lengths, _MOST_STOCK_TOKENS) if colon else (_STOCK_TOKENS,):
            yield _stock(word, json.dumps({"method": method, "num_speculative_tokens": tokens}))
    elif kind == "off" and colon:
        if not Path(rest).is_file():
            raise UserError(f"--arm {word}: there is no file {rest!r}; allowed: off:FILE, a plugin.yaml")
        yield Choice(f"{rest}, off", "off", detail=rest)
    elif Path(word).is_file():
        yield Choice(word, "file", detail=word)
    else:
        raise UserError(f"--arm: got {word!r}, which is no file either; allowed: {ALLOWED}")


def _stock(word: str, text: str, *, is_native: bool = False) -> Choice:
    """Returns the arm of vLLM's own speculation, or of its drafter only, with settings in JSON, named after them.

    Raises:
        UserError: it is no JSON, or names no method.
    """
    given = speculative_json(f"--arm {word}", text, _EXAMPLE)
    rest = {key: value for key, value in given.items() if key not in ("method", "model", "num_speculative_tokens")}
    parts = [f"K = {given.get('num_speculative_tokens', '?')}", *(f"{_SHORT.get(k, k)} = {v}" for k, v in rest.items())]
    if is_native:
        return Choice(f"{given['method']} of vLLM's, optimal, {', '.join(parts)}", "native", detail=text)
    return Choice(f"{_VLLM}{given['method']}, {', '.join(parts)}", "stock", detail=text)
