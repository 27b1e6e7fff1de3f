"""A step without drafts is the same step, whether vLLM's sampler samples it or ours: row by row, and to every logit."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.sizes import examples

constraints = pytest.importorskip("vllm_spec_plugin.v1.verification.constraints")
from vllm import SamplingParams  # noqa: E402
from vllm.v1.sample.logits_processor import (  # noqa: E402
    BatchUpdate,
    LogitBiasLogitsProcessor,
    LogitsProcessors,
    MinPLogitsProcessor,
    MinTokensLogitsProcessor,
)
from vllm.v1.sample.metadata import SamplingMetadata  # noqa: E402
from vllm.v1.sample.sampler import Sampler  # noqa: E402

from vllm_spec_plugin.v1.verification import sampler as sampler_module  # noqa: E402
from vllm_spec_plugin.v1.verification.chain_rows import Rows  # noqa: E402
from vllm_spec_plugin.v1.verification.sampler import SpecRejectionSampler  # noqa: E402
from vllm_spec_plugin.verification.draft_probs import SparseProbs  # noqa: E402
from vllm_spec_plugin.verification.topology import topology  # noqa: E402

VOCAB, CPU = 40, torch.device("cpu")
# What each request of the batch says. Ids below 3 are stop tokens.
REQUESTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "cold": {"temperature": 0.3},
    "min_p": {"min_p": 0.2},
    "top_k": {"top_k": 5, "temperature": 1.7},
    "top_p": {"top_p": 0.6},
    "all_three": {"top_k": 9, "top_p": 0.8, "min_p": 0.05, "temperature": 0.8},
    "logit_bias": {"logit_bias": {3: 4.5, 7: -100.0}},
    "min_tokens": {"min_tokens": 5, "stop_token_ids": [0, 1, 2]},
    "min_tokens_reached": {"min_tokens": 2, "stop_token_ids": [0, 1, 2]},
    "bad_words": {},
    "allowed": {},
    "repetition": {"repetition_penalty": 1.4},
    "presence": {"presence_penalty": 0.7, "frequency_penalty": -0.4},
    "grammar": {"min_tokens": 9, "stop_token_ids": [0, 1], "structured_outputs": True},
}
BAD_WORDS = [[8], [11, 12], [5, 6, 9]]


def sampling_metadata(names, generator, *, greedy):
    """vLLM's, for a batch of requests with some output behind them."""
    n, config = len(names), SimpleNamespace(scheduler_config=SimpleNamespace(max_num_seqs=len(names)))
    params = []
    for name in names:
        given = {"temperature": 1.0, "max_tokens": 20} | REQUESTS[name]
        is_structured = given.pop("structured_outputs", False)
        made: Any = SamplingParams(**given)
        made.structured_outputs = object() if is_structured else None
        params.append(made)
    prompts = torch.randint(3, VOCAB, (n, 6), generator=generator)
    outputs = torch.randint(3, VOCAB, (n, 4), generator=generator).tolist()
    for output in outputs:
        output[-1] = 11
    added = [(i, params[i], prompts[i].tolist(), outputs[i]) for i in range(n)]
    kinds: list[Any] = [MinTokensLogitsProcessor, LogitBiasLogitsProcessor, MinPLogitsProcessor]
    processors = [each(config, CPU, False) for each in kinds]
    for processor in processors:
        processor.update_state(BatchUpdate(batch_size=n, removed=[], added=added, moved=[]))
    allowed = torch.zeros(n, VOCAB, dtype=torch.bool)
    for i, name in enumerate(names):
        if name == "allowed":
            allowed[i, ::2] = True
    of = {key: torch.tensor([float(getattr(each, key)) for each in params]) for key in ("temperature", "top_p")}
    penalties = {
        f"{kind}s": torch.tensor([float(getattr(each, kind)) for each in params])
        for kind in ("frequency_penalty", "presence_penalty", "repetition_penalty")
    }
    plural: dict[str, Any] = {key.replace("penaltys", "penalties"): value for key, value in penalties.items()}
    return SamplingMetadata(
        temperature=None if greedy else of["temperature"],
        all_greedy=greedy,
        all_random=not greedy,
        top_p=of["top_p"],
        top_k=torch.tensor([each.top_k if each.top_k > 0 else VOCAB for each in params], dtype=torch.int32),
        generators={},
        max_num_logprobs=-1,
        no_penalties=not {"repetition", "presence"} & set(names),
        prompt_token_ids=prompts,
        output_token_ids=outputs,
        allowed_token_ids_mask=allowed if "allowed" in names else None,
        bad_words_token_ids={i: BAD_WORDS for i, name in enumerate(names) if name == "bad_words"},
        logitsprocs=LogitsProcessors(processors),
        spec_token_ids=[[] for _ in names],
        **plural,
    )


def both_ways(names, seed, *, greedy=False):
    """Processes raw logits with vLLM's sampler and with our pipeline, the grammar's row with nothing but its ends."""
    generator = torch.Generator().manual_seed(seed)
    metadata = sampling_metadata(names, generator, greedy=greedy)
    raw = torch.randn(len(names), VOCAB, generator=generator) * 3
    for i, name in enumerate(names):
        if name == "grammar" and seed % 2:
            raw[i, 2:] = float("-inf")
    # Where logprobs are wanted, vLLM gives the logits that it samples from.
    stock = Sampler("processed_logits")(raw.clone(), metadata).logprobs_tensors.logprobs
    rows = Rows.of([0] * len(names), CPU)
    nothing = torch.zeros(0, dtype=torch.int64)
    ours = constraints.constrain(constraints.TargetRows.of(raw.clone(), nothing, rows, metadata), metadata)
    return stock, ours, metadata


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("seed", range(examples(6, 60)))
@pytest.mark.parametrize("names", [[name] for name in REQUESTS] + [list(REQUESTS)], ids=lambda names: "+".join(names))
def test_both_samplers_sample_from_the_same_logits(names, seed, greedy):
    stock, ours, _ = both_ways(names, seed, greedy=greedy)
    assert torch.equal(stock.isneginf(), ours.isneginf())
    torch.testing.assert_close(stock, ours, rtol=1e-6, atol=1e-6)


class Largest(TorchDispatchMode):
    """Remembers the size of the largest tensor that operations create, in bytes."""

    num_bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.num_bytes = max(self.num_bytes, tensor.nbytes)
        return result


@torch.compiler.set_stance("force_eager")
@pytest.mark.parametrize("shape", ["chains", "sparse", "dense", "trees"])
@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("logprobs", [None, 3])
def test_a_large_step_is_verified_in_parts_with_the_same_outputs(monkeypatch, shape, greedy, logprobs):
    """All requests are seeded, so that outputs can be equal; drafts of 0 to 4 tokens, of the target's likely ones."""
    generator = torch.Generator().manual_seed(3)
    names = [*REQUESTS, *REQUESTS]
    metadata = sampling_metadata(names, generator, greedy=greedy)
    metadata.max_num_logprobs = logprobs
    counts = [(3 * i) % 5 for i in range(len(names))]
    raw = torch.randn(sum(counts) + len(counts), VOCAB, generator=generator) * 3
    tokens = torch.randint(3, 6, (sum(counts),), generator=generator)
    q = torch.rand(sum(counts), VOCAB, generator=generator).softmax(-1)
    ids = torch.arange(VOCAB).expand(sum(counts), -1)
    probs: Any = {"dense": q, "sparse": SparseProbs(ids, q)}.get(shape)
    trees = [topology([(0,), (1,), (0, 0), (0, 1)][:n]) for n in counts] if shape == "trees" else None
    step: Any = SimpleNamespace(num_draft_tokens=counts, draft_token_ids=tokens)
    outcomes, largest = [], []
    for part_bytes in (2**28, 4 * VOCAB * 20):
        monkeypatch.setattr(sampler_module, "PART_BYTES", part_bytes)
        sampler = SpecRejectionSampler(Sampler("processed_logprobs"), counts_outputs=False)
        metadata.generators = {i: torch.Generator().manual_seed(i) for i in range(len(names))}
        logits = raw.clone()
        with Largest() as found:
            output, verdict = sampler.verify(step, probs, logits, metadata, trees)
        largest.append(found.num_bytes)
        outcomes.append([output.sampled_token_ids, verdict.nodes, verdict.rows, *(output.logprobs_tensors or ())[:3]])
    for whole, in_parts in zip(*outcomes, strict=True):
        torch.testing.assert_close(in_parts, whole)
    assert largest[0] > 2 * largest[1]
