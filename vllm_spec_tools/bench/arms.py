"""Arms of a benchmark: what `--arm` may say, their names for people, and which of them share an engine."""

import contextlib
import functools
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from rich.console import Console

from vllm_spec_plugin.compat.engine_args import device_memory
from vllm_spec_plugin.config import MAX_TOKENS, PluginConfig, load_config, parse_config
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.proposers.native.config import METHOD as NATIVE
from vllm_spec_plugin.proposers.registry import BUNDLED, method_of
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.bench.engine_args import ArmPlan, arm_environment, engine_arguments, plan_file
from vllm_spec_tools.engines.engine_options import speculative_json, whole_numbers
from vllm_spec_tools.engines.jobs import EngineProcess
from vllm_spec_tools.engines.memory import check_memory, need_of
from vllm_spec_tools.engines.serving import runs_on_cpu

NONE, OPTIMAL = "no speculation", "optimal"
STOCK_METHODS = {method_of(kind): kind for kind in sorted(BUNDLED, key=method_of) if kind.vllm_settings("") is not None}
_STOCK_TOKENS, _MOST_STOCK_TOKENS = 4, 32
_OPTIMAL_TOKENS = 8  # most that `optimal` drafts
_TABLE = "num_speculative_tokens_per_batch_size"
_STOCK_WORDS = " or ".join(f"stock:{method}" for method in STOCK_METHODS)
EXAMPLE = 'stock:{"method": "ngram", "num_speculative_tokens": 4}'
ALLOWED = (
    f"none, optimal, fixed:K,K,..., {_STOCK_WORDS} (also with :K), vLLM's JSON as in {EXAMPLE}, "
    "vllm:JSON (the same drafter, with the plugin's draft lengths), a plugin.yaml, or off:plugin.yaml"
)


@dataclass(frozen=True)
class PlannedArm:
    """An arm of a comparison.

    Attributes:
        plan: its engine. Arms whose plans are equal share one: engines cost memory, and a minute to start.
        spec_tokens: maximum draft tokens in each request; 0 is off, None the engine's own.
        spec_method: the only proposer that drafts in its requests; None is any of the engine's.
        is_fixed: whether the best fixed draft length is chosen from it and others.
        is_stock: whether it is vLLM's own speculation, without the plugin.
    """

    plan: ArmPlan
    spec_tokens: int | None = None
    spec_method: str | None = None
    is_fixed: bool = False
    is_stock: bool = False


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


def plan_arms(words: Sequence[str], base: Base, folder: Path) -> dict[str, PlannedArm]:
    """Returns the arms that words stand for, by name, in order; `none` comes first, whether it is named or not.

    Args:
        folder: for the files of arms that have none.

    Raises:
        UserError: a word says nothing.
        ConfigError: a plugin.yaml has a mistake, or goes with none of the draft lengths.
    """
    lengths = {
        word: whole_numbers(f"--arm {word}", word.removeprefix("fixed:"), MAX_TOKENS, 0)
        for word in words
        if word.startswith("fixed:")
    }
    longest = max((tokens for found in lengths.values() for tokens in found), default=0)

    def planned(word: str) -> dict[str, PlannedArm]:
        kind, colon, rest = word.partition(":")
        if word == OPTIMAL:
            return {OPTIMAL: PlannedArm(_with_length(base, folder, "optimal", _OPTIMAL_TOKENS))}
        if word in lengths:
            return {f"fixed K = {tokens}": _fixed(base, folder, tokens, longest) for tokens in lengths[word]}
        if kind == "vllm" and rest.lstrip().startswith("{"):
            return _native(word, rest, base, folder)
        if kind == "stock" and rest.lstrip().startswith("{"):
            return _stock(word, rest, base)
        if kind == "stock" and colon:
            method, colon, counts = rest.partition(":")
            if method not in STOCK_METHODS:
                raise UserError(f"--arm {word}: got {method!r}; allowed: {', '.join(STOCK_METHODS)}")
            numbers = whole_numbers(f"--arm {word}", counts, _MOST_STOCK_TOKENS) if colon else (_STOCK_TOKENS,)
            settings = ({"method": method, "num_speculative_tokens": tokens} for tokens in numbers)
            return {name: arm for one in settings for name, arm in _stock(word, json.dumps(one), base).items()}
        if kind == "off" and colon:
            if not Path(rest).is_file():
                raise UserError(f"--arm {word}: there is no file {rest!r}; allowed: off:FILE, a plugin.yaml")
            return {f"{rest}, off": PlannedArm(plan_file(Path(rest)), 0)}
        if Path(word).is_file():
            return {word: PlannedArm(plan_file(Path(word)))}
        raise UserError(f"--arm: got {word!r}, which is no file either; allowed: {ALLOWED}")

    arms = {NONE: PlannedArm(ArmPlan(None))}
    for word in words:
        for name, arm in planned(word).items() if word != "none" else ():
            # Two tables of lengths by batch size have the same name.
            same = itertools.count(2)
            while arms.get(name, arm) != arm:
                name = f"{name.split(' (')[0]} ({next(same)})"
            arms[name] = arm
    return arms


def plan_sections(sections: Mapping[str, Any], path: Path, source: str) -> ArmPlan:
    """Writes a plugin.yaml, and returns its engine.

    Args:
        source: where the sections are from, for messages.

    Raises:
        ConfigError: they have a mistake.
    """
    parse_config(sections, source)
    path.write_text(yaml.safe_dump(dict(sections), allow_unicode=True), encoding="utf-8")
    return plan_file(path)


def _with_length(base: Base, folder: Path, policy: str, tokens: int) -> ArmPlan:
    sections = base.config.model_dump(mode="json") | {"draft_length": {"policy": policy, "tokens": tokens}}
    source = f"{base.source} with draft_length {policy}, {tokens} tokens"
    return plan_sections(sections, folder / f"{policy}-{tokens}.yaml", source)


def _fixed(base: Base, folder: Path, tokens: int, longest: int) -> PlannedArm:
    # Requests with `spec_tokens` are drafted for as by an engine of that K.
    is_shared = base.config.text_scope is None and not base.config.drafts_trees
    if tokens == 0 or is_shared:
        plan = _with_length(base, folder, "fixed", longest or base.config.draft_length.tokens)
        return PlannedArm(plan, tokens, is_fixed=tokens > 0)
    return PlannedArm(_with_length(base, folder, "fixed", tokens), is_fixed=True)


def _stock(word: str, text: str, base: Base) -> dict[str, PlannedArm]:
    """Names an arm of vLLM's own speculation after its settings."""
    given, settings, rest = _vllm_settings(word, text, base)
    length = f"K = {given.get('num_speculative_tokens', '?')}" + ", less in larger batches" * (_TABLE in given)
    return {", ".join([f"vLLM's {given['method']}", length, *rest]): PlannedArm(ArmPlan(settings), is_stock=True)}


def _native(word: str, text: str, base: Base, folder: Path) -> dict[str, PlannedArm]:
    """Names an arm of vLLM's drafter with the plugin's draft lengths."""
    given, settings, rest = _vllm_settings(word, text, base)
    tokens = settings.pop("num_speculative_tokens", _OPTIMAL_TOKENS)
    sections = {
        "proposer": {"method": NATIVE, "config": settings},
        "draft_length": {"policy": "optimal", "tokens": tokens},
    }
    plan = plan_sections(sections, folder / f"native-{len(list(folder.iterdir()))}.yaml", f"--arm {word}")
    name = ", ".join([f"vLLM's {given['method']}", f"the plugin's lengths up to {tokens}", *rest])
    return {name: PlannedArm(plan)}


def _vllm_settings(word: str, text: str, base: Base) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Returns a speculative config as given, complete, and the words of its unusual keys."""
    given = speculative_json(f"--arm {word}", text, EXAMPLE)
    unnamed = ("method", "model", "num_speculative_tokens", _TABLE)
    kind = STOCK_METHODS.get(given["method"])
    settings = ((kind.vllm_settings(base.weights(given["method"])) if kind else None) or {}) | given
    return given, settings, [f"{key} = {value}" for key, value in given.items() if key not in unnamed]


def engines(plans: Mapping[str, ArmPlan]) -> dict[str, list[str]]:
    """Returns the arms by engine, each engine called after its arms."""
    groups: dict[str, list[str]] = {}
    for name, plan in plans.items():
        groups.setdefault(repr(plan), []).append(name)
    return {", ".join(names): names for names in groups.values()}


class Engines:
    """Engines of arms, each started when it is first asked for; one at a time, the one before ends first.

    Attributes:
        facts: what each arm's engine chose by itself, by arm; of those that have started.
    """

    def __init__(
        self,
        arguments: Callable[[ArmPlan], dict[str, Any]],
        environment: Mapping[str, str],
        folder: Path,
        say: Callable[[str], object],
        *,
        one_at_a_time: bool,
    ) -> None:
        """Starts none yet.

        Args:
            arguments: of the engine of a plan, see `engine_arguments`.
            one_at_a_time: whether each arm has an engine of its own; else arms of equal plans share one.
        """
        self.facts: dict[str, dict[str, Any]] = {}
        self._arguments, self._environment, self._folder, self._say = arguments, environment, folder, say
        self._one_at_a_time, self._num_started = one_at_a_time, 0
        self._turn: tuple[str, int | None] = "", None
        self._arms: dict[str, tuple[str, list[str], ArmPlan]] = {}
        self._running: dict[str, EngineProcess] = {}

    def add(self, plans: Mapping[str, ArmPlan], *, share: bool = False) -> None:
        """Adds arms, by name.

        Args:
            share: whether arms of equal plans share an engine also one at a time.
        """
        alone = self._one_at_a_time and not share
        for name, members in ({arm: [arm] for arm in plans} if alone else engines(plans)).items():
            self._arms |= {arm: (name, members, plans[arm]) for arm in members}

    def of(self, arm: str, number: int | None = None) -> EngineProcess:
        """Returns an arm's engine; one at a time, one that has started for this round.

        Args:
            number: of the round; None is outside of rounds.

        Raises:
            UserError: it did not start.
        """
        name, members, plan = self._arms[arm]
        if self._one_at_a_time and self._turn != (name, number):
            self.close()
            self._turn = name, number
        if name not in self._running:
            self._say(f"the engine of {name} starts (about a minute)")
            self._num_started += 1
            folder = self._folder / f"engine{self._num_started}"
            engine = EngineProcess(self._arguments(plan), folder, self._environment, name=f"arm {name}")
            self._running[name] = engine
            engine.wait()
            self.facts |= dict.fromkeys(members, engine.facts())
        return self._running[name]

    def close(self, *arms: str) -> None:
        """Ends the engines of arms, or all engines."""
        for name in [self._arms[arm][0] for arm in arms] or list(self._running):
            if name in self._running:
                self._running.pop(name).stop()


@contextlib.contextmanager
def running_engines(
    arms: Mapping[str, PlannedArm],
    target: str,
    seed: int,
    enforce_eager: bool,
    folder: Path,
    console: Console,
    options: Mapping[str, Any],
    *,
    one_at_a_time: bool = False,
    in_pairs: bool = False,
) -> Iterator[Engines]:
    """Yields the engines of arms, which end with the context.

    Args:
        one_at_a_time: start each when it is asked for; else all before the context is entered.
        in_pairs: the caller starts each beside the first arm's only, and ends it before the next one; then arms of
            equal plans share an engine even one at a time.

    Raises:
        UserError: they do not fit into memory, or one did not start.
    """
    plans = {name: arm.plan for name, arm in arms.items()}
    arguments = functools.partial(
        engine_arguments,
        target=target,
        seed=seed,
        enforce_eager=enforce_eager,
        memory=_memory_share(plans, target, options, one_at_a_time=one_at_a_time, in_pairs=in_pairs),
        options=options,
    )
    is_lazy = one_at_a_time or in_pairs

    def say(text: str) -> None:
        if not one_at_a_time:
            console.print(text, soft_wrap=True, highlight=False, markup=False)

    started = Engines(arguments, arm_environment(target, options), folder, say, one_at_a_time=one_at_a_time)
    with contextlib.closing(started):
        started.add(plans, share=in_pairs)
        for name in () if is_lazy else plans:
            started.of(name)
        yield started


def _memory_share(
    plans: Mapping[str, ArmPlan], target: str, options: Mapping[str, Any], *, one_at_a_time: bool, in_pairs: bool
) -> float | None:
    """Returns the share of each device's memory for each engine, see `check_memory`."""
    own = engine_arguments(ArmPlan(None), target, 0, False, options=options)
    needs = {
        name: need_of(target, plans[members[0]].draft_models, own, runs_on_cpu())
        for name, members in engines(plans).items()
    }
    first, *others = needs.items()
    side_by_side = [dict([first, other]) for other in others] if in_pairs else [needs]
    fewer = "" if in_pairs else "fewer --arm"
    device = device_memory()
    shares = [check_memory(one, options, device, one_at_a_time=one_at_a_time, fewer=fewer) for one in side_by_side]
    return shares[-1]


def describe(arms: Mapping[str, PlannedArm], engines: Engines) -> dict[str, dict[str, Any]]:
    """Describes each arm for the record: its configuration, and its engine's own choices."""
    return {
        name: {
            "speculation": arm.plan.settings or arm.plan.speculative_config,
            "spec_tokens": arm.spec_tokens,
            "engine": engines.facts[name],
        }
        for name, arm in arms.items()
    }
