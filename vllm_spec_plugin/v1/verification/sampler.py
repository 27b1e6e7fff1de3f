"""Adapts the verification to vLLM's `RejectionSampler` contract."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from vllm_spec_plugin.v1.compat import sampling as compat
from vllm_spec_plugin.v1.verification.batch import VerificationBatch
from vllm_spec_plugin.v1.verification.chain import NO_TOKEN, ChainVerdict, Method, verify_chain, verify_greedy
from vllm_spec_plugin.v1.verification.chain_rows import Rows
from vllm_spec_plugin.v1.verification.constraints import GREEDY_TEMPERATURE, TargetRows, constrain
from vllm_spec_plugin.v1.verification.noise import Noise, position_keys, signed
from vllm_spec_plugin.v1.verification.positions import OutputPositions
from vllm_spec_plugin.v1.verification.tree import TreeVerdict, verify_tree
from vllm_spec_plugin.v1.verification.tree_rows import TreeRows
from vllm_spec_plugin.verification.draft_probs import DraftProbs
from vllm_spec_plugin.verification.topology import Topology

_CPU = torch.device("cpu")
# Maximum size of a part's logits in float32. Verification of a part needs up to about ten tensors of that size, sorting
# for top-p included.
PART_BYTES = 2**28


class SpecRejectionSampler(torch.nn.Module):
    """Replaces vLLM's `RejectionSampler`: same constructor, same `forward`, on any device.

    Applies the request's whole sampling pipeline to every row, the bonus row included, with the draft tokens before it
    as context. Unlike vLLM's, it applies min-p and logit bias, works on CPU, takes sparse draft distributions and
    trees, and makes a seeded request's output independent of its batch.
    """

    def __init__(
        self,
        sampler: compat.Sampler,
        spec_config: compat.SpeculativeConfig | None = None,
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
        if spec_config is not None and spec_config.rejection_sample_method == "synthetic":
            raise ValueError("rejection_sample_method 'synthetic' is not supported: this sampler is exact")
        self.sampler = sampler
        self.lenience = lenience
        self.method = method
        self.positions = OutputPositions()
        self._counts_outputs = counts_outputs

    def forward(self, *args: Any, **kwargs: Any) -> compat.SamplerOutput:
        """Verifies one step's drafts, see `verify`; returns vLLM's `SamplerOutput` only."""
        return self.verify(*args, **kwargs)[0]

    def verify(
        self,
        metadata: compat.SpecDecodeMetadata,
        draft_probs: DraftProbs,
        logits: torch.Tensor,
        sampling_metadata: compat.SamplingMetadata,
        trees: Sequence[Topology] | None = None,
        host_drafts: Sequence[Sequence[int]] | None = None,
    ) -> tuple[compat.SamplerOutput, TreeVerdict | ChainVerdict]:
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
            vLLM's `SamplerOutput`, and the tokens with the rows that decided them. `sampled_token_ids` is [batch_size,
            max K + 1] int32, padded with -1, on the host if all requests are greedy.
        """
        counts, tokens = metadata.num_draft_tokens, metadata.draft_token_ids.long()
        batch = VerificationBatch(slice(0, len(counts)), counts, tokens, draft_probs, logits, trees, host_drafts)
        wants_logprobs = sampling_metadata.max_num_logprobs is not None or bool(sampling_metadata.logprob_token_ids)
        is_divisible = not compat.needs_whole_batch(sampling_metadata)
        max_rows = PART_BYTES // (4 * logits.shape[1]) if is_divisible else len(logits)
        width = 1 + max([tree.depth for tree in trees] if trees else counts, default=0)
        parts, verdicts, logprobs = list(batch.parts(max_rows, is_padded=wants_logprobs)), [], []
        for part in parts:
            verdict, constrained = self._verify_part(part, width, sampling_metadata, in_place=not wants_logprobs)
            verdicts.append(verdict)
            if wants_logprobs:
                logprobs.append(self._logprobs(verdict, part, constrained, sampling_metadata))
        verdict = verdicts[0] if len(parts) == 1 else _joined(parts, verdicts)
        if self._counts_outputs and sampling_metadata.generators:
            self._count_outputs(verdict, sampling_metadata.generators)
        joined = compat.joined(logprobs) if logprobs else None
        return compat.SamplerOutput(sampled_token_ids=verdict.token_ids, logprobs_tensors=joined), verdict

    def _verify_part(
        self, part: VerificationBatch, width: int, sampling_metadata: compat.SamplingMetadata, *, in_place: bool
    ) -> tuple[TreeVerdict | ChainVerdict, torch.Tensor]:
        """Verifies a part of a step.

        Args:
            part: the part.
            width: maximum rows of a request, in all parts.
            sampling_metadata: vLLM's `SamplingMetadata` of the whole batch.
            in_place: whether the logits may be overwritten.

        Returns:
            The verdict, and the logits after the sampling pipeline.
        """
        logits, trees = part.logits, part.trees
        is_greedy = sampling_metadata.all_greedy and self.lenience == 1 and not trees
        if is_greedy and compat.leaves_logits_alone(sampling_metadata):
            constrained = logits
        else:
            rows = TreeRows.of(trees, logits.device) if trees else Rows.of(part.num_draft_tokens, logits.device)
            rows = rows.with_width(width)
            target = TargetRows.of(logits, part.draft_token_ids, rows, sampling_metadata, part.requests)
            constrained = constrain(target, sampling_metadata, in_place=in_place)
        if not is_greedy:
            return self._decide(part, constrained, rows, sampling_metadata, in_place=in_place), constrained
        drafts = part.draft_token_ids.cpu().numpy() if part.host_drafts is None else _chained(part.host_drafts)
        rows = Rows.of(part.num_draft_tokens, _CPU).with_width(width)
        most_likely = compat.most_likely(constrained).cpu().numpy()
        return ChainVerdict(torch.from_numpy(verify_greedy(most_likely, drafts, rows)), rows), constrained

    def _decide(
        self,
        part: VerificationBatch,
        logits: torch.Tensor,
        rows: Rows,
        sampling_metadata: compat.SamplingMetadata,
        *,
        in_place: bool,
    ) -> TreeVerdict | ChainVerdict:
        """Verifies a part by its logits after the sampling pipeline; `in_place` allows overwriting them."""
        noise = self._noise(logits, rows, part.requests, sampling_metadata.generators)
        greedy: bool | torch.Tensor = sampling_metadata.all_greedy
        if not greedy and not sampling_metadata.all_random:
            assert sampling_metadata.temperature is not None
            greedy = sampling_metadata.temperature[part.requests] < GREEDY_TEMPERATURE
        drafts = part.draft_token_ids, part.draft_probs
        if isinstance(rows, TreeRows):
            if isinstance(greedy, bool):
                greedy = torch.full((len(rows.first),), greedy, device=logits.device)
            return verify_tree(logits, *drafts, rows, greedy, noise)
        most_likely = None if sampling_metadata.all_random else compat.most_likely(logits)
        method: Method = self.method if self.lenience == 1 else "token"
        args = logits, *drafts, rows, greedy, noise, self.lenience, most_likely
        return ChainVerdict(verify_chain(*args, method=method, in_place=in_place), rows)

    @staticmethod
    def parse_output(*args: Any, **kwargs: Any) -> Any:
        """Parses `sampled_token_ids`, as vLLM's."""
        return compat.RejectionSampler.parse_output(*args, **kwargs)

    def _noise(self, logits: torch.Tensor, rows: Rows, requests: slice, of_batch: dict[int, torch.Generator]) -> Noise:
        generators = {i - requests.start: of_batch[i] for i in of_batch if requests.start <= i < requests.stop}
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

    def _count_outputs(self, verdict: TreeVerdict | ChainVerdict, generators: dict[int, torch.Generator]) -> None:
        counts = (verdict.token_ids != NO_TOKEN).sum(1).tolist()
        for i, generator in generators.items():
            self.positions.advance(generator, counts[i])

    def _logprobs(
        self,
        verdict: TreeVerdict | ChainVerdict,
        part: VerificationBatch,
        constrained: torch.Tensor,
        metadata: compat.SamplingMetadata,
    ) -> compat.LogprobsTensors:
        """Returns vLLM's `LogprobsTensors`, one row per entry of `token_ids`, padding included."""
        mode = self.sampler.logprobs_mode
        chosen = (constrained if mode.startswith("processed") else part.logits).float()
        logprobs = chosen if mode.endswith("logits") else self.sampler.compute_logprobs(chosen)
        rows, width = verdict.rows.flatten(), verdict.rows.shape[1]
        tokens = verdict.token_ids.to(chosen.device).long().clamp_min(0).flatten()
        requests = range(part.requests.start, part.requests.start + len(verdict.rows))
        return compat.gather_logprobs(self.sampler, logprobs[rows], tokens, metadata, requests, width)


def _joined(
    parts: Sequence[VerificationBatch], verdicts: Sequence[TreeVerdict | ChainVerdict]
) -> TreeVerdict | ChainVerdict:
    """Joins the verdicts of a step's parts."""
    token_ids = torch.cat([verdict.token_ids for verdict in verdicts])
    if isinstance(verdicts[0], ChainVerdict):
        return ChainVerdict(token_ids, Rows.of([n for part in parts for n in part.num_draft_tokens], token_ids.device))
    starts = itertools.accumulate([len(part.logits) for part in parts[:-1]], initial=0)
    rows = torch.cat([verdict.rows + start for verdict, start in zip(verdicts, starts, strict=True)])
    return TreeVerdict(token_ids, rows, torch.cat([verdict.nodes for verdict in verdicts]))


def _chained(drafts: Sequence[Sequence[int]]) -> npt.NDArray[np.int64]:
    return np.fromiter(itertools.chain.from_iterable(drafts), np.int64)
