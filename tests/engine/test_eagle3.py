"""EAGLE-3 heads draft from the target's hidden states: what the engine computes is what plain torch computes."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from tests.engine import texts
from tests.engine.arms import (
    EAGLE3,
    EAGLE3_AFTER_PREDICTION,
    EAGLE3_CASCADE,
    TIGHT,
    Arms,
    Engine,
)
from tests.engine.exact import Reference, Tokens
from tests.engine.greedy import assert_same_tokens, greedy_job
from tests.engine.jobs import CertifyRequest, Job, JobResult
from tests.engine.test_draft_model import assert_greedy, mixed_job
from tests.engine.test_exactness import assert_sound
from tests.engine.tiny import tiny_adapter
from tests.matrix.cells import greedy_faults
from tests.sizes import is_full
from vllm_spec_plugin.models import model_path
from vllm_spec_plugin.proposers.eagle3.checkpoint import Head, read_head
from vllm_spec_tools.training.eagle3_head import Eagle3Head

pytestmark = pytest.mark.engine

K = 4
ATOL = 2e-3


@pytest.fixture(scope="module")
def prompts(reference: Reference) -> list[Tokens]:
    return texts.sources(reference, 24, 400)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled head as SafeAILab/EAGLE writes one, with half of the vocabulary and an embedding of its own."""
    folder = tmp_path_factory.mktemp("head")
    head = read_head(str(model_path("eagle3")))
    target_ids = torch.randperm(head.config.vocab_size, generator=torch.Generator().manual_seed(0))
    target_ids = target_ids[: len(target_ids) // 2].sort().values
    weights = {name.replace("layers.0.", "midlayer."): tensor for name, tensor in head.weights().items()}
    weights["lm_head.weight"] = weights["lm_head.weight"][target_ids].clone()
    weights["d2t"] = target_ids - torch.arange(len(target_ids))
    with safe_open(model_path("target") / "model.safetensors", "pt") as target:
        weights["embed_tokens.weight"] = target.get_tensor("model.embed_tokens.weight")
    save_file(weights, folder / "model.safetensors")
    config = dict(head.config.layer) | {
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": len(target_ids),
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": list(head.config.aux_layers or ())},
        "norm_before_residual": head.config.norm_before_residual,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "plugin.yaml").write_text("proposer: {method: eagle3, model: .}\ndraft_length: {policy: fixed}\n")
    return folder


class PlainHead:
    """A head beside the bundled target, in transformers and plain torch."""

    def __init__(self, reference: Reference, folder: Path) -> None:
        self._target = reference.model
        self._files: Head = read_head(str(folder))
        self._head = Eagle3Head.load(self._files)
        self.vocab_size = self._files.config.vocab_size

    @torch.inference_mode()
    def logits(self, text: list[int]) -> list[torch.Tensor]:
        """Per number of draft tokens at the end of `text`, from 0, [vocab_size], the logits after it."""
        config = self._files.config
        layers = config.aux_layers_of(self._target.config.num_hidden_layers)
        hidden = self._target(torch.tensor([text]), output_hidden_states=True).hidden_states
        features = self._head.combine(torch.cat([hidden[layer] for layer in layers], -1))
        embeddings = self._target.get_input_embeddings()(torch.tensor([text[1:]]))
        found = []
        for count in range(min(K, len(text) - 1)):
            length = len(text) - 1 - count
            *_, output = self._head.unroll(embeddings, features[:, :length], count + 1)
            found.append(self._over_vocabulary(self._head.lm_head(output[0, -1])))
        return found

    def _over_vocabulary(self, logits: torch.Tensor) -> torch.Tensor:
        if self._files.target_ids is None:
            return logits
        return torch.full((self._files.config.vocab_size,), -torch.inf).scatter(0, self._files.target_ids, logits)


def assert_same_logits(head: PlainHead, result: JobResult, depth: int = K) -> None:
    """Each recorded output is that of plain torch, after one of the possible numbers of draft tokens."""
    num_by_count = [0] * depth
    for text, logits in result.notes["drafting"]:
        found = torch.tensor(logits)
        if len(found) != head.vocab_size:
            # Drafts of Medusa heads beside it in a cascade are recorded as tokens.
            continue
        gaps = [float((found - own).nan_to_num(0).abs().max()) for own in head.logits(text)]
        best = min(range(min(depth, len(gaps))), key=gaps.__getitem__)
        assert gaps[best] < ATOL, f"after {len(text)} tokens: {gaps}"
        num_by_count[best] += 1
    assert min(num_by_count) > 10


def test_logits_are_those_of_plain_torch(arms: Arms, reference: Reference, prompts: list[Tokens]) -> None:
    """After chunked prompts, prefix-cache hits, preemption and rejected drafts."""
    result = arms.run(Engine(config=EAGLE3, check=True, **TIGHT), mixed_job(prompts, record_drafting=0.2))
    assert result.preemptions > 0
    assert result.metrics["vllm:prefix_cache_hits"] > 0
    assert result.notes["draft_pass"] == "uncompiled"
    assert_sound(result)
    assert result.accepted > 50
    assert_same_logits(PlainHead(reference, model_path("eagle3")), result)


def test_a_text_may_go_on_differently_after_a_block_of_the_prefix_cache(
    arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """The head's last entry of a block depends on the token after it."""
    same = max(prompts, key=len)[:96]
    different = [(*same, 10 + i, *prompt[:16]) for i, prompt in enumerate(prompts)]
    job = mixed_job(different, record_drafting=0.3)
    result = arms.run(Engine(config=EAGLE3, check=True, **TIGHT), job)
    assert result.metrics["vllm:prefix_cache_hits"] > 0
    assert_same_logits(PlainHead(reference, model_path("eagle3")), result)


# By the name of the head's pass.
ALONE = {"uncompiled": Engine(config=EAGLE3)}
if is_full():
    ALONE |= {"compiled": Engine(config=EAGLE3, random_lengths=True, compiled=True)}
    ALONE |= {"vllm": Engine(config=EAGLE3, generic_pass=True)}


@pytest.mark.parametrize("name", ALONE)
def test_text_that_was_computed_without_drafts_is_drafted_from(
    name: str, arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """Such text takes the head up to its attention only; later requests find its blocks in the prefix cache."""
    params = {"temperature": 0.0, "max_tokens": 96, "ignore_eos": True}
    prompts = sorted(prompts, key=len)[:12]
    off = [CertifyRequest(prompt, params | {"extra_args": {"spec": "off"}}) for prompt in prompts]
    earlier = arms.run(ALONE[name], Job(off))
    assert not earlier.accepted + earlier.rejected
    longer = [(*prompt, *tokens) for prompt, tokens in zip(prompts, earlier.tokens(), strict=True)]
    result = arms.run(ALONE[name], mixed_job(longer, record_drafting=0.4))
    assert result.notes["draft_pass"] == name
    assert result.metrics["vllm:prefix_cache_hits"] >= 2 * 32 * len(prompts)
    assert_same_logits(PlainHead(reference, model_path("eagle3")), result)


def test_logits_are_those_of_plain_torch_after_drafts_of_other_methods(
    arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """Draft lengths and the order of methods are random; the pass is that of other devices and of several ranks."""
    engine = Engine(config=EAGLE3_CASCADE, generic_pass=True)
    result = arms.run(engine, mixed_job(prompts, record_drafting=0.2))
    assert_sound(result)
    assert_greedy(arms, reference, prompts, result)
    assert_same_logits(PlainHead(reference, model_path("eagle3")), result)


def test_heads_of_the_original_layout_and_of_few_tokens(
    arms: Arms, reference: Reference, prompts: list[Tokens], original: Path
) -> None:
    """The distribution is 0 outside the head's vocabulary; outputs are those without drafts. Full: compiled passes."""
    engine = Engine(config=str(original / "plugin.yaml"), compiled=is_full())
    result = arms.run(engine, mixed_job(prompts, record_drafting=0.1))
    assert result.notes["draft_pass"] == ("compiled" if is_full() else "uncompiled")
    assert_sound(result)
    assert_same_logits(PlainHead(reference, original), result)
    assert_greedy(arms, reference, prompts, result)


def with_and_without_turns(prompts: list[Tokens], num_tokens: int, adapter: str = "") -> list[CertifyRequest]:
    """Pairs with drafts and pairs without; every other request has the adapter."""
    params = {"temperature": 0.0, "max_tokens": num_tokens, "ignore_eos": True}
    return [
        CertifyRequest(prompt, params | ({"extra_args": {"spec": "off"}} if i // 2 % 2 else {}), adapter * (i % 2))
        for i, prompt in enumerate(prompts)
    ]


def test_a_head_drafts_beside_adapters(arms: Arms, prompts: list[Tokens], tmp_path: Path) -> None:
    """The head shares the target's embedding, which vLLM has wrapped; texts without drafts are computed, too."""
    (tmp_path / "target").symlink_to(model_path("target"))
    adapter = str(tiny_adapter(tmp_path / "target"))
    options = (("enable_lora", True), ("max_lora_rank", 8), ("max_loras", 2))
    requests = with_and_without_turns(prompts, 48, adapter)
    plain = [
        CertifyRequest(each.prompt, {**each.params, "extra_args": None, "logprobs": 2}, each.lora) for each in requests
    ]
    without = arms.run(Engine(options=options), Job(plain))
    result = arms.run(Engine(config=EAGLE3, options=options), Job(requests))
    assert not greedy_faults(result, without)
    assert_sound(result)
    assert result.accepted > 200


@pytest.mark.parametrize("fault", ["out_of_memory", "hidden_states"])
def test_a_fault_of_the_head_costs_drafts(fault: str, arms: Arms, reference: Reference, prompts: list[Tokens]) -> None:
    """In drafts, in texts without drafts, and where hidden states are kept: outputs and other steps are as ever."""
    job = Job(with_and_without_turns(prompts, 64), fault=fault)
    result = arms.run(Engine(config=EAGLE3), job)
    plain = arms.run(Engine(), greedy_job(prompts, 64))
    assert_same_tokens(reference, prompts, result, plain)
    errors = {name: count for name, count in result.metrics.items() if count and "proposer_errors" in name}
    assert list(errors) == ["vllm_spec_plugin:proposer_errors_total{reason=raised}"]
    lost = result.metrics["vllm_spec_plugin:requests_lost_total"]
    if fault == "out_of_memory":
        # Hidden states remain for another try.
        assert sum(errors.values()) > 10
        assert result.accepted > 200
        assert not lost
    else:
        assert lost == len(prompts)


def test_a_head_drafts_after_long_drafts_of_another_proposer(
    arms: Arms, reference: Reference, prompts: list[Tokens]
) -> None:
    """While predictions last, more tokens pass than there is room for hidden states of; then the head drafts."""
    prompts, known, more = prompts[:8], 160, 60
    plain = arms.run(Engine(), greedy_job(prompts, known + more))
    params = {"temperature": 0.0, "max_tokens": known + more, "ignore_eos": True}
    requests = [
        CertifyRequest(prompt, params | {"extra_args": {"spec_prediction": output[:known]}})
        for prompt, output in zip(prompts, plain.tokens(), strict=True)
    ]
    engine = Engine(config=EAGLE3_AFTER_PREDICTION, max_num_seqs=8, max_num_batched_tokens=64)
    result = arms.run(engine, Job(requests, record_drafting=1.0))
    assert_same_tokens(reference, prompts, result, plain)
    assert_sound(result)
    assert not result.metrics["vllm_spec_plugin:requests_lost_total"]
    # Of each request, the passes of the head after its prediction: at most one per five tokens, and four draft tokens.
    texts_drafted = [tuple(text) for text, _ in result.notes["drafting"]]
    late = [
        sum(text[: len(prompt)] == prompt and len(text) > len(prompt) + known for text in texts_drafted)
        for prompt in prompts
    ]
    print(f"passes of the head after predictions: {late}")
    assert sum(count >= more // (K + 1) for count in late) >= 0.8 * len(prompts)
    # A quarter of them: plain torch takes a while.
    some = dataclasses.replace(result, notes=result.notes | {"drafting": result.notes["drafting"][::4]})
    assert_same_logits(PlainHead(reference, model_path("eagle3")), some)
