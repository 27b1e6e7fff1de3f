"""vLLM's own ways of drafting on its V2 runner, with the targets that they are tested on."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.engine import texts
from tests.engine.arms import Engine
from tests.engine.exact import Reference, Tokens
from tests.engine.tiny import repeating_prompts, tiny_mtp
from vllm_spec_plugin.models import model_path

NUM_PROMPTS, _LONGEST = 8, 80
_DRAFT_MODEL = {"method": "draft_model", "model": str(model_path("draft"))}
_EAGLE3 = {"method": "eagle3", "model": str(model_path("eagle3"))}
_MTP = {"method": "mtp"}
_PROBABILISTIC = {"draft_sample_method": "probabilistic"}
_BLOCK = {"rejection_sample_method": "block"}
# By name, the speculative configurations without their number of tokens.
DRAFTERS: dict[str, dict[str, Any]] = {
    "none": {},
    "draft_model": _DRAFT_MODEL,
    "draft_model_probabilistic": _DRAFT_MODEL | _PROBABILISTIC,
    "draft_model_block": _DRAFT_MODEL | _BLOCK,
    "draft_model_probabilistic_block": _DRAFT_MODEL | _PROBABILISTIC | _BLOCK,
    "eagle3": _EAGLE3,
    "eagle3_probabilistic": _EAGLE3 | _PROBABILISTIC,
    "mtp": _MTP,
    "mtp_probabilistic": _MTP | _PROBABILISTIC,
    "ngram_gpu": {"method": "ngram_gpu", "prompt_lookup_min": 1, "prompt_lookup_max": 3},
}


@dataclass(frozen=True)
class Target:
    """A target and what it is asked."""

    model: str  # Its folder; empty is the bundled one.
    reference: Reference
    guess: Reference | None  # Of `context_test`.
    prompts: Sequence[Tokens]


def bundled_target(reference: Reference) -> Target:
    """The bundled target."""
    prompts = [*texts.repetitive(reference), *texts.sources(reference, NUM_PROMPTS - 4, _LONGEST)]
    return Target("", reference, Reference("draft"), prompts)


def mtp_target(folder: Path) -> Target:
    """The target with a layer for one more token, made in `folder` if it is not there."""
    model = tiny_mtp(folder)
    return Target(str(model), Reference(model), None, repeating_prompts(NUM_PROMPTS))


def engine(name: str, target: Target, num_tokens: int = 3, **options: Any) -> Engine:
    """The engine of one of `DRAFTERS`, or of none on the same target.

    Args:
        name: of the drafter.
        target: `mtp_target` for `mtp`.
        num_tokens: of a draft.
        options: further arguments of `Engine`.
    """
    config = json.dumps(DRAFTERS[name] | {"num_speculative_tokens": num_tokens}) if DRAFTERS[name] else ""
    arguments = (("skip_tokenizer_init", True),) if target.model else ()
    # Prompts are computed in chunks.
    usual: dict[str, Any] = {"max_num_seqs": 48, "max_num_batched_tokens": 256, "num_blocks": 384}
    return Engine(config=config, model=target.model, runner="v2", options=arguments, **usual | options)
