"""Random numbers of a verification step.

Requests without a seed share torch's default generator. A seeded request's noise is a hash of its seed, the position of
the output token, and the vocabulary entry. So it does not depend on batch, draft length, preemption or device.

The uniform of the j-th trial at an output position is hashed with entry -2 - j, which is in no vocabulary. Trials are a
tree's siblings in the order of rank; a chain's one token, j = 0; or, in block verification, all draft tokens of the
step that begins at the position.
"""

from dataclasses import dataclass

import torch

from vllm_spec_plugin.verification.sampling import draw

# SplitMix64 (Steele, Lea, Flood 2014), in two's complement: torch has no unsigned arithmetic.
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MIX1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX2 = 0x94D049BB133111EB - 2**64

# Numbers hashed per operation, by device: on a CPU they fit in the cache.
_HASHED_AT_ONCE = {"cpu": 2**16}


def _shift_right(x: torch.Tensor, bits: int) -> torch.Tensor:
    mask: int = 2 ** (64 - bits) - 1
    return (x >> bits) & mask


def _mix(x: torch.Tensor) -> torch.Tensor:
    x = (x ^ _shift_right(x, 30)) * _MIX1
    x = (x ^ _shift_right(x, 27)) * _MIX2
    return x ^ _shift_right(x, 31)


def hashed_uniform(keys: torch.Tensor, counters: torch.Tensor) -> torch.Tensor:
    """Returns uniforms in (0, 1), float64, as a pure function of `keys` and `counters` (int64, broadcast)."""
    bits = _shift_right(_mix(_mix(keys) + (counters + 1) * _GOLDEN), 11)
    return (bits.double() + 0.5) * 2.0**-53


def signed(seed: int) -> int:
    """Returns the int64 with the same bits as an unsigned 64-bit seed."""
    return (seed + 2**63) % 2**64 - 2**63


def position_keys(seeds: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Returns one int64 key per (seed, output position), both int64 of the same shape."""
    return _mix(seeds + _GOLDEN) + positions * _GOLDEN


@dataclass(frozen=True)
class Noise:
    """Generates uniforms and exponentials per row of the target's output; the same at each call for seeded rows.

    Attributes:
        vocab_size: number of exponentials per row.
        device: device of the noise.
        keys: [num_rows] int64, hash keys of seeded rows; None if no row is seeded.
        seeded: [num_rows] bool, whether each row is seeded; None if none is.
    """

    vocab_size: int
    device: torch.device
    keys: torch.Tensor | None = None
    seeded: torch.Tensor | None = None

    def uniform(self, rows: torch.Tensor, trial: int | torch.Tensor = 0) -> torch.Tensor:
        """Returns [len(rows)] float64 in [0, 1), for accepting the `trial`-th draft token at each row.

        Args:
            rows: [len(rows)] int64, rows of the target's output.
            trial: index of the trial, for all rows or [len(rows)] int64.
        """
        values = torch.rand(len(rows), dtype=torch.float64, device=self.device)
        if self.keys is not None and self.seeded is not None:
            own = hashed_uniform(self.keys[rows], torch.zeros_like(rows) - 2 - trial)
            values = torch.where(self.seeded[rows], own, values)
        return values

    def sample(self, weights: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Returns [len(rows)] int64, a token per row with probability proportional to its weight.

        Seeded rows take argmax(weight / exponential), which does not change if other tokens are removed. Others invert
        the distribution function, with one random number per row instead of one per vocabulary entry.

        Args:
            weights: [len(rows), vocab_size] float32, at least 0.
            rows: [len(rows)] int64, rows of the target's output.
        """
        tokens = draw(weights, torch.rand(len(rows), dtype=torch.float64, device=self.device))
        if self.keys is None or self.seeded is None:
            return tokens
        seeded = self.seeded[rows].nonzero().squeeze(1)
        tokens[seeded] = self.sample_seeded(weights[seeded], rows[seeded])
        return tokens

    def sample_seeded(self, weights: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Returns the same as `sample`, for seeded rows only."""
        num_at_once = max(_HASHED_AT_ONCE.get(self.device.type, 2**24) // self.vocab_size, 1)
        parts = zip(torch.split(weights, num_at_once), torch.split(rows, num_at_once), strict=True)
        return torch.cat([(part / self.exponential(at)).argmax(-1) for part, at in parts])

    def exponential(self, rows: torch.Tensor) -> torch.Tensor:
        """Returns [len(rows), vocab_size] float32, the exponentials of seeded rows, positive."""
        assert self.keys is not None
        entries = torch.arange(self.vocab_size, device=self.device)
        values = -hashed_uniform(self.keys[rows][:, None], entries).log().float()
        # float32 can round to 0, and weight / 0 would exceed every other entry.
        return values.clamp_min_(torch.finfo(torch.float32).tiny)
