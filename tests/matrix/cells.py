"""Runs a cell of the matrix, and judges the result."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.engine.jobs import CertifyRequest, Job, JobResult
from tests.engine.tiny import ARCHITECTURES, repeating_prompts, tiny_eagle3, tiny_medusa, tiny_model, tiny_mtp
from vllm_spec_plugin.models import model_path
from vllm_spec_tools.certify.greedy import TOLERANCES, first_differences

NUM_TOKENS = 60
TOLERANCE = TOLERANCES["float32"]
_DRAFT = {"method": "draft_model", "draft_sampling": "greedy"}
_NGRAM = {"method": "ngram", "min_order": 1}
_ANY_SEED = 1000
# Of the weights of a draft model.
_NOISE = 0.05
_EAGLE3 = {"method": "eagle3", "draft_sampling": "greedy"}
_TREE = {"method": "medusa", "tree": [[0], [1], [0, 0], [1, 0], [0, 1], [0, 0, 0]]}
# As the gate names a model.
_NAME = re.compile(r"got '[^']*' \(\w+\), which|'[^']*' \(\w+\)")
# What a proposer finds when it is loaded.
_PROPOSERS = re.compile(r"(proposer\.\w+: .*?); allowed: ")
_SPEC_OFF = {"spec": "off"}
# Neighbours in a batch differ in their draft lengths, and one of them has no drafts.
_OPTIONS: tuple[Mapping[str, Any], ...] = ({}, {"spec_tokens": 2}, _SPEC_OFF, {"spec_tokens": 3})


@dataclass(frozen=True)
class Row:
    """A target of the matrix."""

    architecture: str  # A key of `ARCHITECTURES`, "mimo" or "bundled".
    title: str  # What the page calls it.
    options: Mapping[str, Any] = field(default_factory=dict)  # Keyword arguments of `vllm.LLM` that it needs.
    lora: bool = False  # Whether every other request uses an adapter.

    @property
    def columns(self) -> list[str]:
        """The keys of `COLUMNS` that it is run with; what the bundled models do is in tests/engine."""
        if self.architecture == "bundled":
            return []
        left_out = {"eagle3": not self.has_head, "tree": self.architecture == "mimo"}
        return [column for column in COLUMNS if not left_out.get(column)]

    @property
    def has_head(self) -> bool:
        """Whether it is run with an EAGLE-3 head."""
        # A random head is never right beside adapters: tests/engine/test_eagle3.py has the bundled one there.
        return self.architecture in _WITH_HEADS and not self.lora

    def models(self, folder: Path) -> dict[str, Path]:
        """Folders of its "target", a "draft" model, Medusa "heads" and a "head" of EAGLE-3, if it is run with these."""
        if self.architecture == "bundled":
            return {"target": model_path("target"), "draft": model_path("draft"), "head": model_path("eagle3")}
        if self.architecture == "mimo":
            return {"target": tiny_mtp(folder), "draft": tiny_model("qwen2", folder, _NOISE)}
        target, draft = (tiny_model(self.architecture, folder, noise) for noise in (0.0, _NOISE))
        models = {"target": target, "draft": draft, "heads": tiny_medusa(target)}
        return models | ({"head": tiny_eagle3(folder)} if self.has_head else {})


# vLLM's CPU kernels of recurrent layers run with these only.
_RECURRENT = {"enable_prefix_caching": False}
_TITLES = {
    "llama": "Llama",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
    "qwen3_moe": "Qwen3-MoE (experts)",
    "mixtral": "Mixtral (experts)",
    "mistral": "Mistral (sliding window)",
    "gemma2": "Gemma 2 (sliding and full, logits capped)",
    "gemma3": "Gemma 3 text (sliding and full)",
    "phi3": "Phi-3",
    "opt": "OPT",
    "gpt2": "GPT-2",
    "gpt_neox": "GPT-NeoX (vLLM's Transformers backend)",
    "olmo2": "OLMo 2 (vLLM's Transformers backend)",
    "granite": "Granite",
    "falcon": "Falcon (ALiBi)",
    "deepseek_v2": "DeepSeek-V2 (MLA, experts)",
    "gpt_oss": "gpt-oss (sliding and full, sinks, experts)",
    "mamba2": "Mamba2",
    "granite_moe_hybrid": "GraniteMoeHybrid (Mamba2 and attention)",
    "qwen3_next": "Qwen3-Next (gated delta net and attention)",
    "lfm2": "LFM2 (short convolutions and attention)",
}
_OPTIONS_OF: dict[str, Mapping[str, Any]] = {
    "mamba2": _RECURRENT,
    "granite_moe_hybrid": _RECURRENT,
    "qwen3_next": _RECURRENT | {"dtype": "bfloat16"},
    "lfm2": _RECURRENT,
}
# Run with an EAGLE-3 head, too.
_WITH_HEADS = {"llama", "qwen3", "gemma3"}
ROWS = {name: Row(name, _TITLES[name], _OPTIONS_OF.get(name, {})) for name in ARCHITECTURES}
ROWS["bundled"] = Row("bundled", "the bundled target (Llama)")
ROWS["mimo"] = Row("mimo", "MiMo (MTP layer)")
# With one adapter at most, vLLM's CPU build gives it to every request of a mixed step.
_LORA = {"enable_lora": True, "max_lora_rank": 8, "max_loras": 2}
ROWS["llama_lora"] = Row("llama", "Llama with LoRA adapters", _LORA, lora=True)

# Per column of the matrix: the page's word, and the plugin.yaml but for the folder of the draft model or head.
COLUMNS: dict[str, tuple[str, dict[str, Any]]] = {
    "ngram": ("n-gram", {"proposer": _NGRAM, "draft_length": {"policy": "fixed", "tokens": 4}}),
    "draft_model": ("draft model", {"proposer": _DRAFT, "draft_length": {"policy": "fixed", "tokens": 4}}),
    "tree": ("Medusa tree", {"proposer": _TREE, "draft_length": {"policy": "fixed", "tokens": 6}}),
    "eagle3": ("EAGLE-3 head", {"proposer": _EAGLE3, "draft_length": {"policy": "fixed", "tokens": 4}}),
    "cascade": (
        "cascade, `optimal`",
        {
            "proposer": {"method": "cascade", "proposers": [_NGRAM, _DRAFT]},
            "draft_length": {"policy": "optimal", "tokens": 4},
        },
    ),
}
_MODEL_OF = {"eagle3": "head", "tree": "heads"}
# What a cell may be.
EXACT, REFUSED, WRONG, UNTESTED = "exact", "refused", "wrong", "untested"


@dataclass(frozen=True)
class Cell:
    """Describes the result of a cell."""

    verdict: str  # One of the above, or of `native`.
    reasons: Sequence[str] = ()  # Why it is refused, or what is wrong; empty if it is exact.
    accepted: int = 0  # Drafts that were verified and accepted.
    rejected: int = 0  # Drafts that were verified and rejected.
    seconds: float = 0.0  # How long its engine took, start included.


def is_optimal(column: str) -> bool:
    """Whether a column drafts where that is worth its time, which depends on the machine."""
    return column in COLUMNS and COLUMNS[column][1]["draft_length"]["policy"] == "optimal"


def plugin_yaml(column: str, models: Mapping[str, Path]) -> str:
    """The text of a column's plugin.yaml, with the folder of the draft model or head of `Row.models`."""
    data = COLUMNS[column][1]
    proposer = _with_draft(data["proposer"], models[_MODEL_OF.get(column, "draft")])
    return yaml.safe_dump({**data, "proposer": proposer}, sort_keys=False)


def _with_draft(proposer: dict[str, Any], draft: Path) -> dict[str, Any]:
    if "proposers" in proposer:
        return {**proposer, "proposers": [_with_draft(each, draft) for each in proposer["proposers"]]}
    return {**proposer, "model": str(draft)} if proposer["method"] != "ngram" else proposer


def jobs(lora: str = "") -> dict[str, Job]:
    """The jobs of a cell by name, in order.

    Args:
        lora: folder of an adapter that every other request uses; empty is none.
    """
    # Low, as random models are unsure of all they say: else no n-gram is ever accepted.
    seeded = {"temperature": 0.25, "top_p": 0.95}
    return {
        "greedy": _job({"temperature": 0.0}, _OPTIONS, lora),
        "seeded without drafts": _job(seeded, (_SPEC_OFF,), lora, seeds=True),
        "seeded": _job(seeded, _OPTIONS, lora, seeds=True),
    }


def plain_job(lora: str = "") -> Job:
    """The greedy job for an engine without the plugin, with what tells ties."""
    return _job({"temperature": 0.0, "logprobs": 2}, ({},), lora)


def _job(params: dict[str, Any], options: Sequence[Mapping[str, Any]], lora: str, seeds: bool = False) -> Job:
    requests = []
    for i, prompt in enumerate(repeating_prompts(16)):
        own: dict[str, Any] = {"max_tokens": NUM_TOKENS, "ignore_eos": True, **params}
        # Pairs, as every other request has an adapter.
        if extra_args := options[i // 2 % len(options)]:
            own["extra_args"] = dict(extra_args)
        if seeds:
            own["seed"] = _ANY_SEED + i
        requests.append(CertifyRequest(prompt, own, lora if i % 2 else ""))
    return Job(requests)


def refusal(message: str) -> list[str]:
    """The reasons in the message of the gate or of a proposer, without the names of files and models."""
    if found := _PROPOSERS.match(message):
        return [found[1]]
    _, _, text = message.partition("cannot be served here")
    text = text.partition(":\n" if "\n" in text else ": ")[2]
    return [_NAME.sub("it", line.strip().partition("; allowed: ")[0]) for line in text.splitlines()]


def judge(column: str, results: Mapping[str, JobResult], plain: JobResult) -> tuple[str, list[str]]:
    """The verdict on a cell that was served, and what is wrong.

    Args:
        column: a key of `COLUMNS`.
        results: of `jobs`, by name.
        plain: of `plain_job`, without the plugin.
    """
    without = results["seeded without drafts"]
    faults = [*greedy_faults(results["greedy"], plain), *_seeded_faults(results["seeded"], without)]
    if without.accepted or without.rejected:
        faults.append("requests with spec: off were drafted for")
    if faults:
        return WRONG, faults
    for names in [("greedy", "seeded")] if is_optimal(column) else [("greedy",), ("seeded",)]:
        accepted, rejected = (sum(getattr(results[name], each) for name in names) for each in ("accepted", "rejected"))
        if not (accepted and rejected):
            return UNTESTED, [f"{' and '.join(names)}: {accepted} drafts accepted, {rejected} rejected"]
    return EXACT, []


def greedy_faults(result: JobResult, plain: JobResult) -> list[str]:
    """Says where outputs differ from those without speculation, other than where its two likeliest tokens tie."""

    def top_two(request: int, position: int) -> dict[int, float]:
        logprobs = plain.outputs[request][0].logprobs
        assert logprobs is not None
        return logprobs[position]

    differences = first_differences(result.tokens(), plain.tokens(), top_two, TOLERANCE)
    faults = [f"{d.request} at {d.position} (top two {d.logit_gap:.3g} apart)" for d in differences if not d.is_tie]
    return [f"greedy outputs differ: {', '.join(faults)}"] if faults else []


def adapter_faults(mixed: JobResult, base: JobResult) -> list[str]:
    """Says what is wrong with `plain_job` where every other request uses an adapter, beside one without adapters."""
    of_base, of_mixed = (dataclasses.replace(result, outputs=result.outputs[::2]) for result in (base, mixed))
    faults = [f"without an adapter: {fault}" for fault in greedy_faults(of_mixed, of_base)]
    if mixed.tokens()[1::2] == base.tokens()[1::2]:
        faults.append("the adapter changes nothing")
    return faults


def _seeded_faults(result: JobResult, without: JobResult) -> list[str]:
    pairs = zip(result.tokens(), without.tokens(), strict=True)
    faults = [str(i) for i, (tokens, expected) in enumerate(pairs) if tokens != expected]
    return [f"seeded outputs of requests {', '.join(faults)} differ"] if faults else []
