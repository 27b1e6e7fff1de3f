"""The randomness of a verification step.

Requests without a seed share torch's default generator. A seeded request's noise is a hash of its
seed, the position of the output token it decides, and the vocabulary entry: it does not depend on the
batch, on how many tokens were drafted, on preemption, or on the device.

The uniform for the j-th trial at an output position is hashed with -2 - j, an entry that no vocabulary has. Trials are
those of siblings in a tree, in the order of rank; of a chain's one token, j = 0; or, in block verification, of all
draft tokens of the step that begins at the position.
"""

from dataclasses import dataclass

import torch

from vllm_spec_plugin.verification.draw import draw

# SplitMix64 (Steele, Lea, Flood 2014), in two's complement: torch has no unsigned arithmetic.
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MIX1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX2 = 0x94D049BB133111EB - 2**64

# Numbers that are hashed at a time: a CPU keeps them near, and need not find memory for all.
_HASHED_AT_ONCE = {"cpu": 2**16}


def _shift_right(x: torch.Tensor, bits: int) -> torch.Tensor:
    mask: int = 2 ** (64 - bits) - 1
    return (x >> bits) & mask


def _mix(x: torch.Tensor) -> torch.Tensor:
    x = (x ^ _shift_right(x, 30)) * _MIX1
    x = (x ^ _shift_right(x, 27)) * _MIX2
    return x ^ _shift_right(x, 31)


def hashed_uniform(keys: torch.Tensor, counters: torch.Tensor) -> torch.Tensor:
    """Uniforms in (0, 1), float64: a pure function of `keys` and `counters` (int64, broadcast)."""
    bits = _shift_right(_mix(_mix(keys) + (counters + 1) * _GOLDEN), 11)
    return (bits.double() + 0.5) * 2.0**-53


def signed(seed: int) -> int:
    """The int64 with the same bits as an unsigned 64-bit seed."""
    return (seed + 2**63) % 2**64 - 2**63


def position_keys(seeds: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """One int64 key per (seed, output position), both int64 of the same shape."""
    return _mix(seeds + _GOLDEN) + positions * _GOLDEN


@dataclass(frozen=True)
class Noise:
    """Uniforms and exponentials per row of the target's output.

    The same row gives the same noise whenever it is asked for, if it is seeded.

    Attributes:
        vocab_size: entries of an exponential row.
        device: where the noise is made.
        keys: [num_rows] int64 hash keys of seeded rows; None where no row is seeded.
        seeded: [num_rows] bool; None where no row is seeded.
    """

    vocab_size: int
    device: torch.device
    keys: torch.Tensor | None = None
    seeded: torch.Tensor | None = None

    def uniform(self, rows: torch.Tensor, trial: int | torch.Tensor = 0) -> torch.Tensor:
        """[len(rows)] float64 in [0, 1), for accepting the draft token that is tried as the `trial`-th at its row.

        Args:
            rows: [len(rows)] int64, rows of the target's output.
            trial: one for all, or [len(rows)] int64.
        """
        values = torch.rand(len(rows), dtype=torch.float64, device=self.device)
        if self.keys is not None and self.seeded is not None:
            own = hashed_uniform(self.keys[rows], torch.zeros_like(rows) - 2 - trial)
            values = torch.where(self.seeded[rows], own, values)
        return values

    def sample(self, weights: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """[len(rows)] int64: per row a token with probability in proportion to its weight.

        A seeded row takes argmax(weight / exponential), which removing other tokens does not change. The others
        invert the distribution function: one random number per row, not one per vocabulary entry.

        Args:
            weights: [len(rows), vocab_size] float32, none negative.
            rows: [len(rows)] int64, the row of the target's output that each is drawn for.
        """
        tokens = draw(weights, torch.rand(len(rows), dtype=torch.float64, device=self.device))
        if self.keys is None or self.seeded is None:
            return tokens
        seeded = self.seeded[rows].nonzero().squeeze(1)
        tokens[seeded] = self.sample_seeded(weights[seeded], rows[seeded])
        return tokens

    def sample_seeded(self, weights: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """As `sample`, of seeded rows only."""
        most = max(_HASHED_AT_ONCE.get(self.device.type, 2**24) // self.vocab_size, 1)
        parts = zip(torch.split(weights, most), torch.split(rows, most), strict=True)
        return torch.cat([(part / self.exponential(at)).argmax(-1) for part, at in parts])

    def exponential(self, rows: torch.Tensor) -> torch.Tensor:
        """[len(rows), vocab_size] float32, positive: the exponentials of seeded rows."""
        assert self.keys is not None
        entries = torch.arange(self.vocab_size, device=self.device)
        values = -hashed_uniform(self.keys[rows][:, None], entries).log().float()
        # float32 can round to 0, which would beat every other entry.
        return values.clamp_min_(torch.finfo(torch.float32).tiny)
