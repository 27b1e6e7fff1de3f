"""Adapts the verification to vLLM's `RejectionSampler` contract."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from vllm_spec_plugin.compat import sampling as compat
from vllm_spec_plugin.verification.chain import NO_TOKEN, ChainVerdict, Method, verify_chain, verify_greedy
from vllm_spec_plugin.verification.constraints import GREEDY_TEMPERATURE, TargetRows, constrain
from vllm_spec_plugin.verification.draft_probs import DraftProbs
from vllm_spec_plugin.verification.noise import Noise, position_keys, signed
from vllm_spec_plugin.verification.positions import OutputPositions
from vllm_spec_plugin.verification.rows import Rows
from vllm_spec_plugin.verification.topology import Topology
from vllm_spec_plugin.verification.tree import Verdict, verify_tree
from vllm_spec_plugin.verification.tree_rows import TreeRows

_CPU = torch.device("cpu")


class SpecRejectionSampler(torch.nn.Module):
    """Replaces vLLM's `RejectionSampler`: same constructor, same `forward`, on any device.

    Applies the request's whole sampling pipeline to every row, the bonus row included, with the draft tokens before it
    as context. Unlike vLLM's, it applies min-p and logit bias, works on CPU, takes sparse draft distributions and
    trees, and makes a seeded request's output independent of its batch.

    Attributes:
        verdict: result of the latest step: the tokens, and the rows that decided them.
    """

    verdict: Verdict | ChainVerdict

    def __init__(
        self,
        sampler: Any,
        spec_config: Any = None,
        device: torch.device | None = None,
        *,
        lenience: float = 1.0,
        method: Method = "block",
        counts_outputs: bool = True,
    ) -> None:
        """Takes vLLM's arguments.

        Args:
            sampler: vLLM's `Sampler`, for the logprobs mode and logprobs.
            spec_config: vLLM's `SpeculativeConfig`; synthetic acceptance is refused.
            device: device of the verification; on a CPU `method` block is compiled here, else at the first use.
            lenience: 1 is exact (see `verify_chain`); less is verified token by token.
            method: method for sampled chains (see `verify_chain`).
            counts_outputs: whether `forward` counts the tokens of seeded requests, for which it waits for the device.
                Else the caller advances `positions` once they are on the host.

        Raises:
            ValueError: `spec_config` has synthetic acceptance, which does not sample.
        """
        super().__init__()
        if getattr(spec_config, "rejection_sample_method", "standard") == "synthetic":
            raise ValueError("rejection_sample_method 'synthetic' is not supported: this sampler is exact")
        self.sampler = sampler
        self.lenience = lenience
        self.method = method
        self.positions = OutputPositions()
        if device is not None and device.type == "cpu" and method == "block":
            from vllm_spec_plugin.verification.block_cpu import compile_now

            compile_now()
        self._counts_outputs = counts_outputs

    def forward(
        self,
        metadata: Any,
        draft_probs: DraftProbs,
        logits: torch.Tensor,
        sampling_metadata: Any,
        trees: Sequence[Topology] | None = None,
        host_drafts: Sequence[Sequence[int]] | None = None,
    ) -> Any:
        """Verifies one step's drafts.

        Args:
            metadata: vLLM's `SpecDecodeMetadata`.
            draft_probs: q per draft token: None (point masses), sparse, or dense [num_draft_tokens,
                vocab_size] float32.
            logits: [num_draft_tokens + batch_size, vocab_size], logits of the target, request by request; overwritten
                without logprobs, as by vLLM's sampler.
            sampling_metadata: vLLM's `SamplingMetadata`.
            trees: shape of each request's draft; None is chains. Draft tokens of trees may be `NO_TOKEN`: they and
                their descendants are dropped.
            host_drafts: draft tokens of each request if they are chains and on the host, else None.

        Returns:
            vLLM's `SamplerOutput`; its `sampled_token_ids` is [batch_size, max K + 1] int32, padded with -1, on the
            host if all requests are greedy.
        """
        draft_token_ids = metadata.draft_token_ids.long()
        is_greedy = sampling_metadata.all_greedy and self.lenience == 1
        wants_logprobs = sampling_metadata.max_num_logprobs is not None or bool(sampling_metadata.logprob_token_ids)
        if is_greedy and not trees and compat.leaves_logits_alone(sampling_metadata):
            constrained = logits
        else:
            rows = TreeRows.of(trees, logits.device) if trees else Rows.of(metadata.num_draft_tokens, logits.device)
            target = TargetRows.of(logits, draft_token_ids, rows, sampling_metadata)
            constrained = constrain(target, sampling_metadata, in_place=not wants_logprobs)
        if is_greedy and not trees:
            drafts = draft_token_ids.cpu().numpy() if host_drafts is None else _joined(host_drafts)
            rows = Rows.of(metadata.num_draft_tokens, _CPU)
            most_likely = compat.most_likely(constrained).cpu().numpy()
            token_ids = torch.from_numpy(verify_greedy(most_likely, drafts, rows))
            self.verdict = ChainVerdict(token_ids, rows)
        else:
            args = constrained, draft_token_ids, draft_probs, rows, sampling_metadata
            self.verdict = self.verify(*args, in_place=not wants_logprobs)
        if self._counts_outputs and sampling_metadata.generators:
            self._count_outputs(sampling_metadata.generators)
        return compat.SamplerOutput(
            sampled_token_ids=self.verdict.token_ids,
            logprobs_tensors=self._logprobs(logits, constrained, sampling_metadata) if wants_logprobs else None,
        )

    def verify(
        self,
        logits: torch.Tensor,
        draft_token_ids: torch.Tensor,
        draft_probs: DraftProbs,
        rows: Rows,
        sampling_metadata: Any,
        *,
        in_place: bool = False,
    ) -> Verdict | ChainVerdict:
        """Verifies by `logits` after the sampling pipeline; `in_place` allows overwriting them."""
        noise = self._noise(logits, rows, sampling_metadata.generators)
        if isinstance(rows, TreeRows):
            greedy = torch.ones(len(rows.first), dtype=torch.bool, device=logits.device)
            if sampling_metadata.temperature is not None:
                greedy = sampling_metadata.temperature < GREEDY_TEMPERATURE
            return verify_tree(logits, draft_token_ids, draft_probs, rows, greedy, noise)
        most_likely, greedy = None, sampling_metadata.all_greedy
        if not sampling_metadata.all_random:
            most_likely = compat.most_likely(logits)
            greedy = greedy or sampling_metadata.temperature < GREEDY_TEMPERATURE
        args = logits, draft_token_ids, draft_probs, rows, greedy, noise, self.lenience, most_likely
        method: Method = self.method if self.lenience == 1 else "token"
        return ChainVerdict(verify_chain(*args, method=method, in_place=in_place), rows)

    @staticmethod
    def parse_output(*args: Any, **kwargs: Any) -> Any:
        """Parses `sampled_token_ids`, as vLLM's."""
        return compat.RejectionSampler.parse_output(*args, **kwargs)

    def _noise(self, logits: torch.Tensor, rows: Rows, generators: dict[int, torch.Generator]) -> Noise:
        if not generators:
            return Noise(logits.shape[-1], logits.device)
        seeds = torch.zeros(len(rows.first), dtype=torch.int64)
        starts = torch.zeros(len(rows.first), dtype=torch.int64)
        seeded = torch.zeros(len(rows.first), dtype=torch.bool)
        for i, generator in generators.items():
            seeds[i] = signed(generator.initial_seed())
            starts[i] = self.positions.of(generator)
            seeded[i] = True
        seeds, starts, seeded = (t.to(logits.device) for t in (seeds, starts, seeded))
        keys = position_keys(seeds[rows.request], starts[rows.request] + rows.offset)
        return Noise(logits.shape[-1], logits.device, keys, seeded[rows.request])

    def _count_outputs(self, generators: dict[int, torch.Generator]) -> None:
        counts = (self.verdict.token_ids != NO_TOKEN).sum(1).tolist()
        for i, generator in generators.items():
            self.positions.advance(generator, counts[i])

    def _logprobs(self, raw: torch.Tensor, constrained: torch.Tensor, metadata: Any) -> Any:
        """Returns vLLM's `LogprobsTensors`, one row per entry of `token_ids`, padding included."""
        mode = self.sampler.logprobs_mode
        chosen = (constrained if mode.startswith("processed") else raw).float()
        logprobs = chosen if mode.endswith("logits") else self.sampler.compute_logprobs(chosen)
        rows, width = self.verdict.rows.flatten(), self.verdict.rows.shape[1]
        tokens = self.verdict.token_ids.to(raw.device).long().clamp_min(0).flatten()
        if wanted := metadata.logprob_token_ids:
            per_row = {i * width + j: ids for i, ids in wanted.items() for j in range(width)}
            return self.sampler.gather_specific_token_logprobs(logprobs[rows], per_row, tokens)
        return self.sampler.gather_logprobs(logprobs[rows], metadata.max_num_logprobs, tokens)


def _joined(drafts: Sequence[Sequence[int]]) -> npt.NDArray[np.int64]:
    return np.fromiter(itertools.chain.from_iterable(drafts), np.int64)
