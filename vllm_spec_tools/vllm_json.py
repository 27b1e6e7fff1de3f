"""Checks vLLM's `--speculative-config` JSON, and converts it to a plugin.yaml."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

from vllm_spec_plugin.compat.installed import installed_version, speculative_keys, speculative_methods
from vllm_spec_plugin.config import PluginConfig
from vllm_spec_plugin.config.draft_length import MAX_TOKENS
from vllm_spec_plugin.config.loading import parse_config
from vllm_spec_plugin.proposers.native.config import METHOD as NATIVE
from vllm_spec_plugin.proposers.native.config import NativeConfig
from vllm_spec_plugin.schema.errors import Mistake, config_error, did_you_mean, show, unknown_word

_SUFFIX_DEPTH = 24
# Keys that choose lengths otherwise.
_LENGTHS = ("num_speculative_tokens_per_batch_size", "enable_adaptive_verification")
# Methods of vLLM that draft nothing, or that the plugin sets itself.
_NO_DRAFTERS = ("custom_class", "extract_hidden_states")


class Converted(NamedTuple):
    """A configuration made of vLLM's JSON."""

    config: dict[str, Any]
    notes: list[str]


def convert_native(given: Mapping[str, Any], source: str) -> Converted:
    """Converts vLLM's settings to `method: vllm`: the same drafter, with the plugin's draft lengths.

    Raises:
        ConfigError: a key is unknown to vLLM, or settings conflict; lists every mistake.
    """
    notes: list[str] = []
    if mistakes := mistakes_in(given):
        raise config_error(source, mistakes)
    settings = {key: value for key, value in given.items() if value is not None and value is not False}
    draft_length: dict[str, Any] = {"policy": "optimal"}
    if (tokens := _tokens(settings, settings.get("method"), notes)) is not None:
        draft_length["tokens"] = tokens
    for key in _LENGTHS:
        if settings.pop(key, None):
            notes.append(f"{key}: left out; policy optimal chooses each request's length by acceptance and time")
    config = {"proposer": {"method": NATIVE, "config": settings}, "draft_length": draft_length}
    parse_config(config, source)
    return Converted(config, notes)


def mistakes_in(given: Mapping[str, Any]) -> list[Mistake]:
    """Returns unknown keys of a speculative config, and wrong values of `method`, `model` and `num_speculative_tokens`.

    Methods are checked if vLLM is installed. vLLM's own, whole check needs the target and takes many seconds.
    """
    mistakes = _unknown_keys(given)
    method, known = given.get("method"), speculative_methods()
    if method is not None and known and method not in known:
        # One word stands for the heads of each architecture.
        shown = [word for word in known if not word.endswith("_mtp") and word not in _NO_DRAFTERS]
        mistakes.append(Mistake("method", unknown_word(method, shown)))
    if not isinstance(model := given.get("model"), str | None):
        mistakes.append(Mistake("model", f"got {show(model)}; allowed: a folder or a hub name"))
    tokens = given.get("num_speculative_tokens")
    if tokens is not None and not (type(tokens) is int and tokens > 0):
        mistakes.append(Mistake("num_speculative_tokens", f"got {show(tokens)}; allowed: a whole number from 1"))
    return mistakes


def _unknown_keys(given: Mapping[str, Any]) -> list[Mistake]:
    known = speculative_keys()
    return [
        Mistake(key, f"unknown to vLLM {installed_version()} (got {show(value)}){did_you_mean(key, known)}")
        for key, value in given.items()
        if known and key not in known
    ]


def missing_package(method: object) -> list[Mistake]:
    """Returns a mistake if vLLM's drafter of a method needs a package that is not installed."""
    if method != "suffix" or find_spec("arctic_inference") is not None:
        return []
    text = "got the text 'suffix', and vLLM's drafter needs arctic-inference, which is not installed; allowed: "
    return [Mistake("method", text + "pip install arctic-inference, the plugin's own suffix, or another method")]


def check_native(config: PluginConfig, source: str) -> None:
    """Checks the speculative config of `method: vllm`, if there is one, by `mistakes_in` and `missing_package`.

    Raises:
        ConfigError: lists every mistake.
    """
    for i, proposer in enumerate(config.proposers):
        if isinstance(proposer, NativeConfig):
            section = "proposer" if proposer is config.proposer else f"proposer.proposers[{i}]"
            found = mistakes_in(proposer.config) or missing_package(proposer.config.get("method"))
            if found:
                raise config_error(source, [Mistake(f"{section}.config.{each.key}", each.text) for each in found])


def _tokens(settings: dict[str, Any], method: object, notes: list[str]) -> Any:
    tokens = settings.pop("num_speculative_tokens", None)
    if tokens is None and method == "suffix":
        tokens = settings.get("suffix_decoding_max_tree_depth", _SUFFIX_DEPTH)
    if tokens is not None:
        if type(tokens) is int and tokens > MAX_TOKENS:
            notes.append(f"num_speculative_tokens: got {tokens}; {MAX_TOKENS} is the maximum here")
            tokens = MAX_TOKENS
        notes.append(
            f"num_speculative_tokens: policy optimal drafts up to {show(tokens)}, as many as pay; policy fixed always "
            "drafts the maximum"
        )
    return tokens
