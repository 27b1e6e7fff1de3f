"""An engine for each way to draft, and the engines without drafts whose outputs theirs must be."""

import dataclasses
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.engine.arms import (
    CASCADE,
    DRAFT_MODEL_OPTIMAL,
    EAGLE3_CASCADE,
    GRAMMAR,
    MEDUSA_TREE_DRAWN,
    REPOSITORY,
    TIGHT,
    Engine,
)
from tests.engine.v2.drafters import DRAFTERS
from tests.fixed_length import STOCK_DRAFT_MODEL, fixed_length, native
from tests.sizes import is_full
from vllm_spec_plugin.config import PluginConfig, load_config
from vllm_spec_plugin.gate.ways import Way, way_of
from vllm_spec_plugin.models import model_path

K = 4
# What the target writes all the time; the end of thinking takes several tokens.
START, END = "(", ") # end\n"
THINKING = (("reasoning_config", (("reasoning_start_str", START), ("reasoning_end_str", END))),)
VLLMS_EAGLE3 = json.dumps({"method": "eagle3", "model": str(model_path("eagle3"))})
VLLMS_NGRAM = json.dumps({"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 5})
HEADS = {"method": "medusa", "model": str(model_path("medusa"))}
# Prompts are computed in chunks, and requests are preempted; by Triton's interpreter each step takes a while.
FEW_BLOCKS: dict[str, Any] = {"max_num_seqs": 12, "max_num_batched_tokens": 96, "num_blocks": 12, "max_model_len": 320}


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="ways-"))


def written(proposer: dict[str, Any], tokens: int, **sections: Any) -> str:
    """Path of a file with that proposer and draft length, and further sections."""
    text = yaml.safe_dump({"proposer": proposer, "draft_length": {"policy": "fixed", "tokens": tokens}, **sections})
    path = _folder() / f"{abs(hash(text))}.yaml"
    path.write_text(text)
    return str(path)


def cascade(*proposers: dict[str, Any], tokens: int = K) -> str:
    """Path of a file with several proposers."""
    return written({"method": "cascade", "proposers": list(proposers)}, tokens)


def after_texts(last: dict[str, Any], tokens: int = K) -> str:
    """Path of a file that drafts from predictions and texts before that proposer."""
    return cascade({"method": "prediction"}, {"method": "suffix", "min_order": 4}, last, tokens=tokens)


def vllms(drafter: str) -> dict[str, Any]:
    """One of vLLM's drafters as a proposer."""
    return {"method": "vllm", "config": json.loads(drafter)}


def on_v1(config: str, **options: Any) -> Engine:
    """An engine with few blocks and random draft lengths, which checks them in each step if the plugin manages them."""
    usual = TIGHT | {"random_lengths": True, "check": not load_config(config).is_native, "options": THINKING}
    return Engine(config=config, **usual | options)


def on_v2(config: str, **options: Any) -> Engine:
    """The same on V2."""
    usual = FEW_BLOCKS | {"runner": "v2", "random_lengths": True}
    return Engine(config=config, **usual | options)


def vllms_on_v2(name: str) -> str:
    """Path of a file with one of V2's drafters, three tokens a draft."""
    return native(json.dumps(DRAFTERS[name]), 3)


WAYS = {
    "texts": on_v1(str(REPOSITORY / "tests/engine/configs/token_only.yaml")),
    "cascade": on_v1(CASCADE),
    "eagle3_cascade": on_v1(EAGLE3_CASCADE),
    "medusa_tree_drawn": on_v1(MEDUSA_TREE_DRAWN),
    "draft_model_optimal": on_v1(DRAFT_MODEL_OPTIMAL, random_lengths=False),
    "vLLM's draft_model": on_v1(native(STOCK_DRAFT_MODEL, K)),
    "texts, vLLM's eagle3": on_v1(after_texts(vllms(VLLMS_EAGLE3))),
    "suffix on V2": on_v2(fixed_length("suffix", K)),
    "medusa on V2": on_v2(written(HEADS, 3)),
    "draft_model on V2": on_v2(fixed_length("draft_model", 3), runner="default"),
    "vLLM's draft_model on V2": on_v2(vllms_on_v2("draft_model")),
}
if is_full():
    # Nothing in them that the others have not.
    WAYS |= {
        "vLLM's eagle3": on_v1(native(VLLMS_EAGLE3, K)),
        "vLLM's ngram": on_v1(native(VLLMS_NGRAM, K)),
        "texts, vLLM's draft_model": on_v1(after_texts(vllms(STOCK_DRAFT_MODEL))),
        "vLLM's eagle3 on V2": on_v2(vllms_on_v2("eagle3")),
        "vLLM's ngram_gpu on V2": on_v2(vllms_on_v2("ngram_gpu")),
        "texts, vLLM's draft_model on V2": on_v2(after_texts(vllms(STOCK_DRAFT_MODEL), 3)),
        "texts, medusa on V2": on_v2(after_texts(HEADS, 3)),
    }
GRAMMARS = on_v1(GRAMMAR, random_lengths=False)


def settings(engine: Engine) -> PluginConfig:
    """The engine's plugin.yaml."""
    return load_config(engine.config)


def way(engine: Engine) -> Way:
    """The way in which an engine drafts."""
    return way_of(settings(engine), is_v2=engine.runner != "v1", is_async=False)


def without_speculation(engine: Engine) -> Engine:
    """The engine whose outputs must be those of `engine`: one on V1, one on V2."""
    if engine.runner == "v1":
        return Engine(options=engine.options)
    return dataclasses.replace(engine, config="", runner="v2", options=(), random_lengths=False)
