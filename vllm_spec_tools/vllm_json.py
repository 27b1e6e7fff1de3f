"""Checks vLLM's `--speculative-config` JSON, and converts it to a plugin.yaml."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

from vllm_spec_plugin.compat.installed import speculative_methods
from vllm_spec_plugin.config import PluginConfig
from vllm_spec_plugin.config.draft_length import MAX_TOKENS
from vllm_spec_plugin.config.loading import parse_config
from vllm_spec_plugin.proposers.native.config import METHOD as NATIVE
from vllm_spec_plugin.proposers.native.config import NativeConfig
from vllm_spec_plugin.proposers.ngram.config import NgramConfig
from vllm_spec_plugin.proposers.registry import BUNDLED, Kind, method_of
from vllm_spec_plugin.schema.errors import Mistake, config_error, did_you_mean, show, unknown_word
from vllm_spec_plugin.schema.vllm_keys import KEYS, VERSIONS, hint_for_key, reason_against

_MAX_ORDER: int = NgramConfig.model_json_schema()["properties"]["min_order"]["maximum"]
_VERIFICATION = {"standard": "token", "block": "block"}
_SUFFIX_DEPTH = 24
# Methods of vLLM that draft nothing, or that the plugin sets itself.
_NO_DRAFTERS = ("custom_class", "extract_hidden_states")


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the known keys whose value is not vLLM's default, which changes nothing."""
    return {key: value for key, value in given.items() if key in KEYS and value is not None and value is not False}


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
    settings = _settings(given)
    draft_length: dict[str, Any] = {"policy": "optimal"}
    if (tokens := _tokens(settings, settings.get("method"), notes)) is not None:
        draft_length["tokens"] = tokens
    for key in ("num_speculative_tokens_per_batch_size", "enable_adaptive_verification"):
        if settings.pop(key, None):
            notes.append(f"{key}: left out; {KEYS[key].reason}")
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
    return [
        Mistake(
            key, f"unknown to vLLM {VERSIONS} (got {show(value)}){hint_for_key(key) or did_you_mean(key, list(KEYS))}"
        )
        for key, value in given.items()
        if key not in KEYS
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


def convert(given: Mapping[str, Any], source: str) -> Converted:
    """Converts vLLM's settings to one of the plugin's own proposers.

    The draft length becomes the maximum of `policy: optimal`. Settings that the plugin does not have are
    dropped with a note if outputs do not depend on them, else refused.

    Raises:
        ConfigError: a key is unknown to vLLM, or cannot be converted; lists every mistake.
    """
    notes: list[str] = []
    mistakes = _unknown_keys(given)
    settings = _settings(given)
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
        if isinstance(sampler, str) and sampler in _VERIFICATION:
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
        name = "prompt_lookup_min" if least is not None else "prompt_lookup_max"
        order = next((bound for bound in (least, most) if bound is not None), 5)
        section["min_order"] = _at_most(_MAX_ORDER, order, name, notes)
    for key, value in settings.items():
        name = KEYS[key].here.removeprefix("proposer.")
        if name in kind.model_fields:
            section[name] = value
        else:
            notes.append(f"{key}: left out; {KEYS[key].reason or f'method {method_of(kind)} does not use it'}")
    return section
