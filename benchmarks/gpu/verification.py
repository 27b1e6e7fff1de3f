"""Times verification of a step's drafts: ours on V1 by token, by block and of trees, and V2's; vLLM's V1 sampler.

    python -m benchmarks.gpu.verification results.jsonl

All verify the same drafts of sampled requests, K = 4, with dense draft probabilities; a line of JSON per size, with
medians in milliseconds. vLLM's V1 sampler verifies chains token by token. On V2, which needs Triton, the plugin's is
coupled or by block, with vLLM's kernels, and vLLM's own by token.
"""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from vllm.triton_utils import HAS_TRITON
from vllm.v1.sample.logits_processor import LogitsProcessors
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.rejection_sampler import RejectionSampler
from vllm.v1.sample.sampler import Sampler
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

from vllm_spec_plugin.compat.v2_verification import noise_of_step
from vllm_spec_plugin.v1.verification.sampler import SpecRejectionSampler
from vllm_spec_plugin.verification.coupled import accept_equal
from vllm_spec_plugin.verification.topology import topology

K = 4
_TREE = topology([(0,), (0, 0), (0, 0, 0), (1,)])
_LOGITS, _APART = 3.0, 1.0


def metadata_of(drafts: torch.Tensor) -> SpecDecodeMetadata:
    """vLLM's description of a step.

    Args:
        drafts: [batch_size, K] int64, draft tokens.
    """
    size, count = drafts.shape
    made = SpecDecodeMetadata.make_dummy(drafts.tolist(), drafts.device)
    rows = torch.arange(size * (count + 1), dtype=torch.int32, device=drafts.device).view(size, count + 1)
    made.target_logits_indices, made.bonus_logits_indices = rows[:, :-1].flatten(), rows[:, -1].contiguous()
    made.logits_indices = rows.flatten()
    return made


def sampling_of(size: int, device: torch.device) -> SamplingMetadata:
    """vLLM's sampling parameters of requests at temperature 1."""
    none = torch.empty(0, device=device)
    return SamplingMetadata(
        temperature=torch.ones(size, device=device),
        all_greedy=False,
        all_random=True,
        top_p=None,
        top_k=None,
        generators={},
        max_num_logprobs=None,
        no_penalties=True,
        prompt_token_ids=None,
        frequency_penalties=none,
        presence_penalties=none,
        repetition_penalties=none,
        output_token_ids=[[] for _ in range(size)],
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=LogitsProcessors(),
    )


def v2_calls(drafts: torch.Tensor, draft_logits: torch.Tensor) -> dict[str, Callable[[torch.Tensor], Any]]:
    """Returns V2's verifications of a step by name, functions of the target's logits after sampling parameters.

    Args:
        drafts: [batch_size, K] int64, draft tokens.
        draft_logits: [batch_size, K, vocab_size], logits that they were sampled from.
    """
    from vllm.v1.worker.gpu.sample.gumbel import gumbel_sample
    from vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils import rejection_sample

    size, device = len(drafts), drafts.device
    requests, rows = torch.arange(size, device=device), torch.arange(K + 1, dtype=torch.int32, device=device)
    of_row, rows = requests.repeat_interleave(K + 1), rows.repeat(size)
    starts = torch.arange(size + 1, dtype=torch.int32, device=device) * (K + 1)
    follows = torch.cat([drafts[:, :1], drafts], 1).flatten().int()
    positions, temperature, seeds = 100 + rows.long(), torch.ones(size, device=device), requests.clone()

    def coupled(logits: torch.Tensor) -> Any:
        given = (of_row, temperature, seeds, positions)
        sampled = gumbel_sample(logits, *given, apply_temperature=False, is_drafting=False)
        return accept_equal(sampled, follows, starts.long(), K + 1)

    def rejection(logits: torch.Tensor, *, names: torch.Tensor, is_block: bool) -> Any:
        given = (starts, names, requests, of_row, rows, temperature, seeds, K)
        return rejection_sample(logits, draft_logits, follows, *given, use_block_verification=is_block)

    return {
        "coupled, V2": coupled,
        "block, V2": lambda logits: rejection(logits, names=noise_of_step(positions, rows, K), is_block=True),
        "vLLM's, V2": lambda logits: rejection(logits, names=positions, is_block=False),
    }


def measure(vocab_size: int, size: int, rounds: int, device: torch.device) -> dict[str, float]:
    """Returns medians in milliseconds, by sampler; they take turns."""
    torch.manual_seed(0)
    target = torch.randn(size * (K + 1), vocab_size, device=device) * _LOGITS
    of_drafts = target.view(size, K + 1, -1)[:, :-1].flatten(0, 1)
    q = (of_drafts + torch.randn_like(of_drafts) * _APART).softmax(-1)
    drafts = torch.multinomial(q, 1).view(size, K)
    metadata, sampling = metadata_of(drafts), sampling_of(size, device)
    sampler, host = Sampler(), drafts.tolist()
    token = SpecRejectionSampler(sampler, device=device, counts_outputs=False)
    block = SpecRejectionSampler(sampler, device=device, method="block", counts_outputs=False)
    calls: dict[str, Callable[[torch.Tensor], Any]] = {
        "token": lambda logits: token(metadata, q, logits, sampling, None, host),
        "block": lambda logits: block(metadata, q, logits, sampling, None, host),
        "tree": lambda logits: token(metadata, q, logits, sampling, [_TREE] * size, host),
    }
    if device.type == "cuda":
        # Its Triton kernels.
        theirs = RejectionSampler(sampler)
        calls["vLLM's V1"] = lambda logits: theirs(metadata, q, logits, sampling)
    if HAS_TRITON:
        calls |= v2_calls(drafts, q.log().view(size, K, -1))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 3):
        for name, call in calls.items():
            logits = target.clone()
            _wait(device)
            begin = time.perf_counter()
            call(logits)
            _wait(device)
            if number >= 3:
                times[name].append(time.perf_counter() - begin)
    return {name: round(statistics.median(own) * 1e3, 4) for name, own in times.items()}


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main(
    out: Annotated[Path, typer.Argument(help="File to append results to.")],
    vocab_sizes: Annotated[str, typer.Option(help="Vocabulary sizes.")] = "152064,32000,262144",
    batches: Annotated[str, typer.Option(help="Numbers of requests.")] = "64,1,256",
    rounds: Annotated[int, typer.Option(min=1)] = 30,
) -> None:
    """Times verification on the GPU, or on a CPU where there is none."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for vocab_size in map(int, vocab_sizes.split(",")):
        for size in map(int, batches.split(",")):
            found = measure(vocab_size, size, rounds, device)
            line = {"device": device.type, "vocab_size": vocab_size, "requests": size, "milliseconds": found}
            with out.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(line, flush=True)


if __name__ == "__main__":
    with torch.inference_mode():
        typer.run(main)
