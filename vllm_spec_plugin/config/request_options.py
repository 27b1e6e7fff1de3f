"""A request's own options for speculation: `vllm_xargs` of the API, `SamplingParams.extra_args` offline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm_spec_plugin.schema.errors import show, unknown_word

if TYPE_CHECKING:
    from vllm_spec_plugin.proposers.section import ProposerConfig

SPEC, SPEC_TOKENS, SPEC_METHOD, SPEC_PREDICTION = "spec", "spec_tokens", "spec_method", "spec_prediction"
NAMES = (SPEC, SPEC_TOKENS, SPEC_METHOD, SPEC_PREDICTION)


@dataclass(frozen=True)
class RequestOptions:
    """A request's own limits on speculation.

    Attributes:
        max_tokens: maximum draft tokens per step; None is the server's maximum, 0 switches drafts off.
        method: the only method that may draft for it; None allows every method of the server.
        has_prediction: whether it predicts its output.
        has_grammar: whether its output is structured.
    """

    max_tokens: int | None = None
    method: str | None = None
    has_prediction: bool = False
    has_grammar: bool = False

    def allows(self, proposer: "ProposerConfig") -> bool:
        """Whether a proposer may draft for it."""
        if (proposer.uses_predictions and not self.has_prediction) or (proposer.uses_grammar and not self.has_grammar):
            return False
        return self.method in (None, proposer.method)


def check_options(
    extra_args: Mapping[str, Any] | None, max_tokens: int, methods: Sequence[str], *, takes_predictions: bool = False
) -> None:
    """Refuses options that the server cannot honour, and unknown keys that begin with `spec_`.

    Args:
        extra_args: the request's; keys of other plugins, and keys that are not strings, are ignored.
        max_tokens: the server's maximum draft length, in tokens.
        methods: the server's methods of drafting.
        takes_predictions: whether one of them drafts from predicted outputs. A request's `prediction`, which is a
            mapping here, is allowed without, as other servers ignore it.

    Raises:
        ValueError: names the key, the value given and what is allowed.
    """
    texts = {key: value for key, value in (extra_args or {}).items() if isinstance(key, str)}
    given = {key: value for key, value in texts.items() if key == SPEC or key.startswith(f"{SPEC}_")}
    for key, value in given.items():
        if key not in NAMES:
            raise _refusal(key, "unknown key", ", ".join(NAMES))
        if key == SPEC and not (isinstance(value, str) and value in ("on", "off")):
            raise _refusal(key, f"got {show(value)}", "on or off")
        if key == SPEC_TOKENS and (type(value) is not int or not 1 <= value <= max_tokens):
            limit = f"a whole number from 1 to {max_tokens}, the longest draft of this server (for none, {SPEC}: off)"
            raise _refusal(key, f"got {show(value)}", limit)
        if key == SPEC_METHOD and not isinstance(value, str):
            raise _refusal(key, f"got {show(value)}", ", ".join(methods))
        if key == SPEC_METHOD and value not in methods:
            raise ValueError(f"vllm_xargs.{key}: {unknown_word(value, list(methods))}")
        if key == SPEC_PREDICTION and not takes_predictions and not isinstance(value, Mapping):
            raise _refusal(key, "the server does not draft from predictions", "a server with method prediction")
    others = ", ".join(sorted(set(given) - {SPEC, SPEC_PREDICTION}))
    if given.get(SPEC) == "off" and others:
        raise _refusal(SPEC, f"got 'off' together with {others}", f"off by itself, or {others} without it")


def check_verified_by_vllm(logprob_token_ids: Sequence[int] | None) -> None:
    """Refuses what vLLM's verification of drafts would answer wrongly, for a server on which vLLM verifies.

    On V1 its rejection sampler ends the engine (vLLM issue 44727), on V2 it returns the likeliest tokens instead; one
    such request of a batch is enough, with drafts or without.

    Args:
        logprob_token_ids: the request's.

    Raises:
        ValueError: names the parameter, the value given and what is allowed.
    """
    if logprob_token_ids is not None:
        given = f"logprob_token_ids: got {len(logprob_token_ids)} token ids, but vLLM verifies this server's drafts"
        raise ValueError(f"{given} and returns others; allowed: logprobs, or a server without speculation")


def read_options(
    extra_args: Mapping[str, Any] | None, *, has_grammar: bool = False, default: int | None = None
) -> RequestOptions:
    """Reads the options of a request that `check_options` has accepted.

    Args:
        extra_args: the request's.
        has_grammar: whether its output is structured.
        default: maximum draft tokens of a request that states neither `spec` nor `spec_tokens`; see `Limits`.
    """
    given = extra_args or {}
    max_tokens = given.get(SPEC_TOKENS) if SPEC in given or SPEC_TOKENS in given else default
    if given.get(SPEC) == "off":
        max_tokens = 0
    return RequestOptions(max_tokens, given.get(SPEC_METHOD), bool(given.get(SPEC_PREDICTION)), has_grammar)


def read_prediction(extra_args: Mapping[str, Any] | None) -> list[int] | None:
    """Reads the tokens of a request's predicted output; None if it has none."""
    return extra_args.get(SPEC_PREDICTION) if extra_args else None


def _refusal(key: str, problem: str, allowed: str) -> ValueError:
    return ValueError(f"vllm_xargs.{key}: {problem}; allowed: {allowed}")


def draft_options(
    spec_tokens: int | None, spec_method: str | None = None, prediction: str = ""
) -> dict[str, Any] | None:
    """Builds a request's options as `SamplingParams.extra_args` takes them.

    Args:
        spec_tokens: maximum draft tokens per step, 0 for none; None is the engine's maximum.
        spec_method: the only method that may draft; None allows every method.
        prediction: the predicted output, empty for none; a server without `method: prediction` takes it too.
    """
    # As the API has it: one that is not a mapping is refused where nothing drafts from predictions.
    predicted = {"prediction": {"type": "content", "content": prediction}} if prediction else None
    limits = {SPEC: "off"} if spec_tokens == 0 else {SPEC_TOKENS: spec_tokens, SPEC_METHOD: spec_method}
    given = {**limits, SPEC_PREDICTION: predicted}
    return {key: value for key, value in given.items() if value is not None} or None
