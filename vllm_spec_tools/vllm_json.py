"""Converts vLLM's `--speculative-config` JSON to a plugin.yaml."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from vllm_spec_plugin.config.draft_length import MAX_TOKENS
from vllm_spec_plugin.config.loading import parse_config
from vllm_spec_plugin.proposers.native.config import METHOD as NATIVE
from vllm_spec_plugin.proposers.ngram.config import NgramConfig
from vllm_spec_plugin.proposers.registry import BUNDLED, Kind, method_of
from vllm_spec_plugin.schema.errors import Mistake, config_error, did_you_mean, show, unknown_word
from vllm_spec_plugin.schema.vllm_keys import KEYS, VERSIONS, hint_for_key, reason_against

_MAX_ORDER: int = NgramConfig.model_json_schema()["properties"]["min_order"]["maximum"]
_VERIFICATION = {"standard": "token", "block": "block"}
_SUFFIX_DEPTH = 24
# vLLM's defaults: such a value changes nothing.
_DEFAULTS = (None, False)


class Converted(NamedTuple):
    """A configuration made of vLLM's JSON."""

    config: dict[str, Any]
    notes: list[str]


def convert_native(given: Mapping[str, Any], source: str) -> Converted:
    """Converts vLLM's settings to `method: vllm`: the same drafter, with draft lengths of the plugin's.

    Raises:
        ConfigError: a key is unknown to vLLM, or settings conflict; lists every mistake.
    """
    notes: list[str] = []
    if mistakes := _unknown(given):
        raise config_error(source, mistakes)
    settings = {key: value for key, value in given.items() if value not in _DEFAULTS}
    draft_length: dict[str, Any] = {"policy": "optimal"}
    if (tokens := _tokens(settings, settings.get("method"), notes)) is not None:
        draft_length["tokens"] = tokens
    for key in ("num_speculative_tokens_per_batch_size", "enable_adaptive_verification"):
        if settings.pop(key, None):
            notes.append(f"{key}: left out; {KEYS[key].reason}")
    config = {"proposer": {"method": NATIVE, "config": settings}, "draft_length": draft_length}
    parse_config(config, source)
    return Converted(config, notes)


def _unknown(given: Mapping[str, Any]) -> list[Mistake]:
    return [
        Mistake(
            key, f"unknown to vLLM {VERSIONS} (got {show(value)}){hint_for_key(key) or did_you_mean(key, list(KEYS))}"
        )
        for key, value in given.items()
        if key not in KEYS
    ]


def convert(given: Mapping[str, Any], source: str) -> Converted:
    """Converts vLLM's settings to one of the plugin's own proposers.

    The draft length becomes the maximum of `policy: optimal`. Settings that the plugin does not have are
    dropped with a note if outputs do not depend on them, else refused.

    Raises:
        ConfigError: a key is unknown to vLLM, or cannot be converted; lists every mistake.
    """
    notes: list[str] = []
    mistakes = _unknown(given)
    settings = {key: value for key, value in given.items() if key in KEYS and value not in _DEFAULTS}
    mistakes += [
        Mistake(key, f"got {show(value)}; {KEYS[key].reason}; allowed: leave it out")
        for key, value in settings.items()
        if KEYS[key].is_refused
    ]
    method = _method(settings, notes)
    kind = next((kind for kind in BUNDLED if method_of(kind) == method), None)
    if kind is None:
        why = f"got {show(method)}; {reason}" if (reason := reason_against(method)) else ""
        mistakes.append(Mistake("method", why or unknown_word(method, sorted(map(method_of, BUNDLED)))))
    config: dict[str, Any] = {"proposer": {"method": method}}
    if (tokens := _tokens(settings, method, notes)) is not None:
        config["draft_length"] = {"policy": "optimal", "tokens": tokens}
    if (sampler := settings.pop("rejection_sample_method", None)) is not None:
        if sampler in _VERIFICATION:
            config["verification"] = {"method": _VERIFICATION[sampler]}
        else:
            text = "; not exact" if sampler in ("synthetic", "fly") else ""
            mistakes.append(Mistake("rejection_sample_method", unknown_word(sampler, list(_VERIFICATION)) + text))
    if mistakes or kind is None:
        raise config_error(source, mistakes)
    config["proposer"] |= _proposer(settings, kind, notes)
    parse_config(config, source)
    return Converted(config, notes)


def _method(settings: dict[str, Any], notes: list[str]) -> object:
    """Takes the method out of the settings, as vLLM finds it: by name, or by the model's name."""
    method, model = settings.pop("method", None), settings.get("model")
    if model in ("ngram", "[ngram]"):
        settings.pop("model")
        method = method or "ngram"
    if method == "ngram_gpu":
        notes.append("method: ngram_gpu became ngram, which runs on the CPU")
        return "ngram"
    if method is not None or not isinstance(model, str):
        return method
    for part, found in (("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dspark")):
        if part in model.lower():
            return found
    notes.append("method: draft_model is assumed; vLLM reads the model's config to find the method")
    return "draft_model"


def _tokens(settings: dict[str, Any], method: object, notes: list[str]) -> Any:
    tokens = settings.pop("num_speculative_tokens", None)
    if tokens is None and method == "suffix":
        tokens = settings.get("suffix_decoding_max_tree_depth", _SUFFIX_DEPTH)
    if tokens is not None:
        tokens = _at_most(MAX_TOKENS, tokens, "num_speculative_tokens", notes)
        notes.append(
            f"num_speculative_tokens: policy optimal drafts up to {show(tokens)}, as many as pay; policy fixed always "
            "drafts the maximum"
        )
    return tokens


def _at_most(bound: int, value: Any, key: str, notes: list[str]) -> Any:
    if type(value) is int and value > bound:
        notes.append(f"{key}: got {value}; {bound} is the maximum here")
        return bound
    return value


def _proposer(settings: dict[str, Any], kind: Kind, notes: list[str]) -> dict[str, Any]:
    """Returns the keys of the section `proposer` other than `method`."""
    section: dict[str, Any] = {}
    if kind is NgramConfig:
        # As in vLLM: one bound stands for both, and both are 5 by default.
        least, most = settings.pop("prompt_lookup_min", None), settings.get("prompt_lookup_max")
        name = "prompt_lookup_min" if least else "prompt_lookup_max"
        section["min_order"] = _at_most(_MAX_ORDER, least or most or 5, name, notes)
    for key, value in settings.items():
        name = KEYS[key].here.removeprefix("proposer.")
        if name in kind.model_fields:
            section[name] = value
        else:
            notes.append(f"{key}: left out; {KEYS[key].reason or f'method {method_of(kind)} does not use it'}")
    return section
