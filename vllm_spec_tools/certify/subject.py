"""The engines of a certification: the file as given, and the same proposers with random draft lengths."""

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from vllm_spec_plugin.compat.engine_choice import takes_v2
from vllm_spec_plugin.config import PluginConfig, load_config
from vllm_spec_plugin.register.modes import first_runner

# Labels of the engines.
PLAIN, FORCED, AS_GIVEN, TIGHT = "no speculation", "random draft lengths", "as configured", "few KV blocks"


class Subject(NamedTuple):
    """Engines and drafts to certify.

    Attributes:
        engines: by label, vLLM's speculative config as JSON or the path of a plugin.yaml, and the accepted length at
            which a step has accepted its whole draft.
        uses_predictions: whether drafts are made from predicted outputs.
        uses_grammar: whether drafts are made from the grammar of structured outputs.
        by_vllm: whether vLLM's own sampler verifies, which refuses some sampling parameters.
        seeds: what seeded outputs are independent of: drafts where verification is coupled, else other requests where
            the plugin's V1 sampler verifies.
    """

    engines: dict[str, tuple[str, int]]
    uses_predictions: bool = False
    uses_grammar: bool = False
    by_vllm: bool = False
    seeds: Literal["drafts", "batch", "neither"] = "neither"


def stock_subject(text: str) -> Subject:
    """Returns the engines of vLLM's own speculative config: its lengths are fixed."""
    tokens = json.loads(text)["num_speculative_tokens"]
    return Subject({AS_GIVEN: (text, tokens), TIGHT: (text, tokens)}, by_vllm=True)


def plugin_subject(path: Path, folder: Path) -> Subject:
    """Returns the engines of a plugin.yaml; a policy that may draft little is also replaced by random lengths.

    Args:
        path: the plugin.yaml.
        folder: where a copy with random lengths is written.
    """
    config, given = load_config(path), str(path.absolute())
    most = max_accepted_of(config)
    engines = {AS_GIVEN: (given, most), TIGHT: (given, most)}
    if config.draft_length.policy != "fixed":
        copy = folder / "random.yaml"
        copy.write_text(yaml.safe_dump(at_random_lengths(config), sort_keys=False))
        engines = {FORCED: (str(copy), most), TIGHT: (str(copy), most), AS_GIVEN: (given, most)}
    runner = first_runner(config, given)
    is_v2 = runner.is_v2 or (config.is_native and takes_v2())
    is_coupled = is_v2 and runner.config.verified_on_v2 == "coupled"
    return Subject(
        engines,
        any(proposer.uses_predictions for proposer in config.proposers),
        any(proposer.uses_grammar for proposer in config.proposers),
        config.is_native and not is_v2,
        "drafts" if is_coupled else "neither" if is_v2 or config.is_native else "batch",
    )


def at_random_lengths(config: PluginConfig) -> dict[str, Any]:
    """Returns the same proposers, each with a random draft length per request and step, up to the same maximum."""
    data = config.model_dump(mode="json", include={"proposer", "verification"})
    return data | {"draft_length": {"policy": "random", "tokens": config.draft_length.tokens}}


def max_accepted_of(config: PluginConfig) -> int:
    """The accepted length at which a step has accepted its whole draft.

    Trees whose depth is not known beforehand count as chains of all their tokens.
    """
    max_tokens = config.draft_length.tokens
    trees = [proposer.fixed_tree for proposer in config.proposers]
    return max(max_tokens if tree is None else tree.depth for tree in trees)
