"""Verifies chains of a ragged batch, in torch alone: Algorithm 1 of Leviathan et al. (2023), or by blocks."""

import functools
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from vllm_spec_plugin.v1.verification import block
from vllm_spec_plugin.v1.verification.chain_rows import Rows
from vllm_spec_plugin.v1.verification.noise import Noise
from vllm_spec_plugin.verification.draft_probs import DraftProbs, SparseProbs, token_probs

NO_TOKEN = -1

Method = Literal["block", "token"]


class ChainVerdict:
    """Result of a verification of chains; seldom used parts are computed at the first access.

    Attributes:
        token_ids: [batch_size, rows.width] int32, per request the accepted tokens, then the recovered or bonus token,
            then `NO_TOKEN`.
    """

    def __init__(self, token_ids: torch.Tensor, rows: Rows) -> None:
        """Takes the result of `verify_chain` for `rows`, on the same device."""
        self.token_ids = token_ids
        self._rows = rows

    @functools.cached_property
    def nodes(self) -> torch.Tensor:
        """[batch_size] int64, index of each request's last accepted draft token in its draft; -1 for none."""
        return (self.token_ids != NO_TOKEN).sum(1) - 2

    @functools.cached_property
    def rows(self) -> torch.Tensor:
        """[batch_size, width] int64, the row that decided each token; padded with the last one."""
        columns = torch.arange(self._rows.width, device=self.token_ids.device)
        return self._rows.first[:, None] + columns.minimum(self.nodes[:, None] + 1)


def verify_greedy(
    most_likely: npt.NDArray[np.int64], draft_token_ids: npt.NDArray[np.int64], rows: Rows
) -> npt.NDArray[np.int32]:
    """Verifies a step with greedy requests only, on the host.

    Args:
        most_likely: [num_rows] int64, the target's most likely token per row.
        draft_token_ids: [num_draft_tokens] int64, negative for no token.
        rows: layout of the step, on the CPU.

    Returns:
        As `verify_chain`.
    """
    draft_row, columns = rows.draft_row.numpy(), np.arange(rows.width)
    equal = np.zeros((len(rows.first), rows.width), dtype=np.bool_)
    cells = rows.request.numpy()[draft_row], rows.offset.numpy()[draft_row]
    equal[cells] = most_likely[draft_row] == draft_token_ids
    num_accepted = np.logical_and.accumulate(equal, axis=1).sum(1)
    # Accepted tokens are the most likely ones.
    token_ids = most_likely[np.minimum(rows.first.numpy()[:, None] + columns, len(most_likely) - 1)]
    return np.where(columns <= num_accepted[:, None], token_ids, NO_TOKEN).astype(np.int32)


def verify_chain(
    target_logits: torch.Tensor,
    draft_token_ids: torch.Tensor,
    draft_probs: DraftProbs,
    rows: Rows,
    greedy: torch.Tensor | bool,
    noise: Noise,
    lenience: float = 1.0,
    most_likely: torch.Tensor | None = None,
    *,
    method: Method = "token",
    in_place: bool = False,
) -> torch.Tensor:
    """Accepts draft tokens, and samples the token after the accepted ones.

    Token by token, a sampled request accepts draft token x with probability min(1, p(x) / q(x)). After the first
    rejection it outputs a token of norm(max(0, p - q)), without one a bonus token of p. A greedy request accepts the
    most likely token of p. The output is then distributed as p.

    By blocks, sampled requests accept more of sampled drafts on average, see `accept_blocks`. Greedy drafts (point
    masses) are accepted with the same probabilities by both methods; greedy requests have the same output.

    A seeded request with a point mass (q(x) = 1) samples its token from p first, and accepts the draft token if they
    are equal: the probabilities are the same, and the output does not depend on the draft.

    On a GPU the host reads nothing back, except for seeded requests.

    Args:
        target_logits: [num_rows, vocab_size] float32, after the request's whole sampling pipeline.
        draft_token_ids: [num_draft_tokens] int64; `NO_TOKEN`, and all tokens after it in its request, are dropped.
        draft_probs: q of each draft token.
        rows: layout of the step.
        greedy: [batch_size] bool; one bool if it is the same for all.
        noise: random numbers of the step.
        lenience: l in (0, 1]; 1 is exact. Less multiplies q before the comparison (appendix A.5: no token becomes
            more likely than p / l), and greedy requests accept x if p(x) >= l max(p).
        most_likely: [num_rows] int64, argmax of `target_logits`; None computes it.
        method: method for sampled drafts of sampled requests; block is for lenience 1 only.
        in_place: whether `target_logits` may be overwritten, which saves memory on a CPU.

    Returns:
        [batch_size, rows.width] int32, per request the accepted tokens, then the recovered or bonus token, then
        `NO_TOKEN`.

    Raises:
        ValueError: method block with lenience below 1.
    """
    if most_likely is None and greedy is not False:
        most_likely = target_logits.argmax(-1)
    drafted = draft_token_ids >= 0
    tokens = draft_token_ids.clamp_min(0)
    is_reused = in_place and target_logits.device.type == "cpu"
    probs = torch.softmax(target_logits, -1, out=target_logits if is_reused else None)
    p = probs[rows.draft_row, tokens]
    if greedy is False or most_likely is None:
        num_accepted, weight = _accepted(probs, p, tokens, drafted, draft_probs, rows, False, noise, lenience, method)
        next_token = _recovered(probs, p, tokens, drafted, draft_probs, rows, num_accepted, weight, noise)
        return _output(tokens, next_token, num_accepted, rows)
    accepted = most_likely[rows.draft_row] == tokens
    if lenience < 1:
        accepted = p >= lenience * probs.amax(-1)[rows.draft_row]
    num_accepted = _leading(accepted & drafted, rows)
    if greedy is True:
        return _output(tokens, most_likely[rows.first + num_accepted], num_accepted, rows)
    kept, weight = _accepted(probs, p, tokens, drafted, draft_probs, rows, greedy, noise, lenience, method)
    num_accepted = torch.where(greedy, num_accepted, kept)
    sampled = _recovered(probs, p, tokens, drafted, draft_probs, rows, num_accepted, weight, noise)
    next_token = torch.where(greedy, most_likely[rows.first + num_accepted], sampled)
    return _output(tokens, next_token, num_accepted, rows)


def _accepted(
    probs: torch.Tensor,
    p: torch.Tensor,
    tokens: torch.Tensor,
    drafted: torch.Tensor,
    draft_probs: DraftProbs,
    rows: Rows,
    greedy: torch.Tensor | Literal[False],
    noise: Noise,
    lenience: float,
    method: Method,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Returns [batch_size] int64, accepted draft tokens, and [batch_size] float32, the factor of p in the residuals.

    None for the latter is 1 for all. Values of greedy requests are meaningless.
    """
    if method == "token" or draft_probs is None or not len(tokens):
        kept = _kept(probs, p, tokens, draft_probs, rows, noise, lenience)
        return _leading(kept & drafted, rows), None
    if lenience < 1:
        raise ValueError(f"lenience {lenience} needs method token")
    lengths = _leading(drafted, rows)
    in_blocks = None if greedy is False else ~greedy
    if noise.seeded is not None:
        # Point masses only: the output must not depend on the draft.
        certain = _leading((token_probs(draft_probs, tokens) == 1) & drafted, rows) == lengths
        coupled = noise.seeded[rows.first] & certain
        in_blocks = ~coupled if in_blocks is None else in_blocks & ~coupled
    counted = lengths if in_blocks is None else torch.where(in_blocks, lengths, 0)
    num_accepted, weight = block.accept_blocks(probs, p, tokens, counted, draft_probs, rows, noise)
    if noise.seeded is not None:
        kept = _kept(probs, p, tokens, draft_probs, rows, noise, lenience)
        num_accepted = torch.where(coupled, _leading(kept & drafted, rows), num_accepted)
    return num_accepted, weight


def _kept(
    probs: torch.Tensor,
    p: torch.Tensor,
    tokens: torch.Tensor,
    draft_probs: DraftProbs,
    rows: Rows,
    noise: Noise,
    lenience: float,
) -> torch.Tensor:
    """Returns [num_draft_tokens] bool, whether sampled requests accept each token if those before it are."""
    # Strict, so that p = 0 is never accepted and p >= q always.
    threshold = noise.uniform(rows.draft_row) * lenience
    if draft_probs is None:
        kept, certain = threshold < p, None
    else:
        q = token_probs(draft_probs, tokens)
        kept, certain = (threshold * q < p) & (q > 0), q == 1
    if lenience == 1 and noise.seeded is not None:
        coupled = noise.seeded[rows.draft_row]
        coupled = (coupled if certain is None else coupled & certain).nonzero().squeeze(1)
        at = rows.draft_row[coupled]
        kept[coupled] = noise.sample_seeded(probs[at], at) == tokens[coupled]
    return kept


def _leading(accepted: torch.Tensor, rows: Rows) -> torch.Tensor:
    """Returns [batch_size] int64, number of each request's draft tokens before the first rejected one."""
    grid = torch.zeros(len(rows.first), rows.width, dtype=torch.int64, device=accepted.device)
    grid[rows.draft_request, rows.draft_offset] = accepted.long()
    return grid.cumprod(1).sum(1)


def _recovered(
    probs: torch.Tensor,
    p: torch.Tensor,
    tokens: torch.Tensor,
    drafted: torch.Tensor,
    draft_probs: DraftProbs,
    rows: Rows,
    num_accepted: torch.Tensor,
    weight: torch.Tensor | None,
    noise: Noise,
) -> torch.Tensor:
    """Returns [batch_size] int64, a token of the residual after a rejection, else of p."""
    stop = rows.first + num_accepted
    weights = probs[stop]
    if len(tokens):
        # Without a rejection, any draft token: its q is not subtracted.
        draft = (rows.draft_start + num_accepted).clamp_max(len(tokens) - 1)
        rejected = (num_accepted < rows.num_draft_tokens) & drafted[draft]
        weights = _residual(weights, p, tokens, draft_probs, draft, rejected, weight)
    return noise.sample(weights, stop)


def _residual(
    probs: torch.Tensor,
    p: torch.Tensor,
    tokens: torch.Tensor,
    draft_probs: DraftProbs,
    draft: torch.Tensor,
    rejected: torch.Tensor,
    weight: torch.Tensor | None,
) -> torch.Tensor:
    """Returns [batch_size, vocab_size], unnormalised: max(0, w p - q) after a rejection, else p.

    Args:
        probs: [batch_size, vocab_size], p at each request's last row; may be changed.
        p: [num_draft_tokens], p of each draft token.
        tokens: [num_draft_tokens] int64, draft tokens.
        draft_probs: q of each draft token.
        draft: [batch_size] int64, index of a draft token per request.
        rejected: [batch_size] bool, whether that token was rejected.
        weight: [batch_size] float32, w; None is 1 for all.
    """
    if draft_probs is None:
        return probs.scatter_add_(1, tokens[draft, None], torch.where(rejected, -p[draft], 0)[:, None])
    times = rejected.float() if weight is None else torch.where(rejected, block.times_taken(weight), 0)
    if isinstance(draft_probs, SparseProbs):
        left = probs.scatter_add(1, draft_probs.token_ids[draft], draft_probs.probs[draft] * -times[:, None])
    else:
        left = probs.addcmul(draft_probs[draft], times[:, None], value=-1)
    left.clamp_min_(0)
    # An empty residual means p = q up to rounding; this rejection has probability 0 in exact arithmetic.
    empty = left.sum(-1, keepdim=True) <= 0
    return torch.where(empty, probs, left, out=left)


def _output(tokens: torch.Tensor, next_token: torch.Tensor, num_accepted: torch.Tensor, rows: Rows) -> torch.Tensor:
    output = torch.full((len(rows.first), rows.width), NO_TOKEN, dtype=torch.int64, device=tokens.device)
    output[rows.draft_request, rows.draft_offset] = tokens
    columns = torch.arange(rows.width, device=tokens.device)
    output = torch.where(columns < num_accepted[:, None], output, NO_TOKEN)
    output.scatter_(1, num_accepted[:, None], next_token[:, None])
    return output.int()
