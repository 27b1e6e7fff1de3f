"""The registry of drafting methods: the plugin's own, and those of other distributions.

A distribution registers a method by an entry point of the group `vllm_spec_plugin.proposers`: its name is the method,
its value a subclass of `ProposerConfig`.
"""

import functools
import logging
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, get_args

from vllm_spec_plugin.proposers.base import Proposer
from vllm_spec_plugin.proposers.draft_model.config import DraftModelConfig
from vllm_spec_plugin.proposers.eagle3.config import Eagle3Config
from vllm_spec_plugin.proposers.grammar.config import GrammarConfig
from vllm_spec_plugin.proposers.medusa.config import MedusaConfig
from vllm_spec_plugin.proposers.native.config import METHOD as NATIVE
from vllm_spec_plugin.proposers.ngram.config import NgramConfig
from vllm_spec_plugin.proposers.prediction.config import PredictionConfig
from vllm_spec_plugin.proposers.section import ProposerConfig
from vllm_spec_plugin.proposers.suffix.config import SuffixConfig
from vllm_spec_plugin.schema.errors import show_reason

logger = logging.getLogger("vllm.vllm_spec_plugin")

GROUP = "vllm_spec_plugin.proposers"
CASCADE = "cascade"

# The plugin's own methods are listed here.
BundledConfig = (
    NgramConfig | SuffixConfig | DraftModelConfig | Eagle3Config | MedusaConfig | PredictionConfig | GrammarConfig
)

Kind = type[ProposerConfig]
BUNDLED: tuple[Kind, ...] = get_args(BundledConfig)


class BrokenProposerError(ValueError):
    """A method of another distribution cannot be used; str() names the method and the reason.

    Attributes:
        method: name of the method.
    """

    def __init__(self, method: str, owners: str, reason: str) -> None:
        super().__init__(f"proposer '{method}' of {owners} cannot be used: {reason}")
        self.method = method


def method_of(kind: Kind) -> str:
    """Returns the value of `method` that chooses `kind`; empty if its key `method` is not one literal."""
    words = get_args(kind.model_fields["method"].annotation)
    return words[0] if len(words) == 1 and isinstance(words[0], str) else ""


def kinds_for(methods: Iterable[object]) -> tuple[Kind, ...]:
    """Returns the methods for a configuration: the plugin's own, and methods of other distributions that it names.

    Only named methods are imported. If a named method does not exist, all are, for the error message to list.

    Args:
        methods: the configuration's values of `method`.

    Raises:
        BrokenProposerError: a named method cannot be used.
    """
    named, others = list(methods), _entry_points()
    known = {*map(method_of, BUNDLED), CASCADE, NATIVE}
    found = {method: _load(method) for method in named if isinstance(method, str) and method in others}
    if any(not isinstance(method, str) or method not in known | found.keys() for method in named):
        for method in others:
            try:
                found[method] = _load(method)
            except BrokenProposerError as error:
                logger.warning("%s", error)
    return BUNDLED + tuple(found[method] for method in sorted(found))


@functools.cache
def _entry_points() -> dict[str, list[EntryPoint]]:
    """Returns other distributions' entry points by method, without loading them."""
    own = {*map(method_of, BUNDLED), CASCADE, NATIVE}
    found: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=GROUP):
        if entry.name in own:
            logger.warning(
                "proposer '%s' of %s is ignored: the plugin has a method of that name; uninstall it or rename it",
                entry.name,
                _distribution(entry),
            )
        else:
            found.setdefault(entry.name, []).append(entry)
    return found


@functools.cache
def _load(method: str) -> Kind:
    entries = _entry_points()[method]
    owners = " and ".join(map(_distribution, entries))

    broken = functools.partial(BrokenProposerError, method, owners)
    if len(entries) > 1:
        raise broken("only one distribution may register a method; uninstall the others")
    try:
        kind = entries[0].load()
    except (Exception, SystemExit) as error:  # importing foreign code may raise anything
        raise broken(f"importing {entries[0].value} failed: {type(error).__name__}: {show_reason(error)}") from error
    if not (isinstance(kind, type) and issubclass(kind, ProposerConfig)):
        raise broken(f"{entries[0].value} is not a subclass of vllm_spec_plugin.proposers.section.ProposerConfig")
    if method_of(kind) != method:
        raise broken(f'its key must be method: Literal["{method}"]')
    try:
        kind.model_json_schema()
    except Exception as error:
        raise broken(f"its keys have no JSON schema: {show_reason(error)}") from error
    return kind


def _distribution(entry: EntryPoint) -> str:
    return f"distribution {entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown distribution"


def create_proposer(config: ProposerConfig, num_tokens: int, vocab_size: int, engine: Any = None) -> Proposer:
    """Builds a proposer; see `ProposerConfig.create`."""
    return config.create(num_tokens, vocab_size, engine)
