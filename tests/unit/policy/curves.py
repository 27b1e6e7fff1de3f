"""Times of steps to learn from: curves of two machines and their noise."""

import numpy as np

SEED = 20240517
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def cpu(num_tokens):
    """Seconds on two cores, of a model of 200M parameters."""
    return 0.045 * np.interp(num_tokens, [1, 5, 9, 33, 512], [1.0, 1.35, 1.75, 4.5, 60.0])


def gpu(num_tokens):
    """Seconds where up to 16 tokens cost what 1 does."""
    return 0.007 * np.maximum(1.0, np.asarray(num_tokens) / 16)


class Noise:
    """Log-normal, as a share of the time."""

    def __init__(self, share=0.05):
        self.rng = np.random.default_rng(SEED)
        self._share = share

    def __call__(self, seconds):
        return float(seconds * np.exp(self.rng.normal(0, self._share)))


def probe(curve, factor=1.0, offset=0.0):
    """Simulates a start-up probe of SIZES that is off by a factor and an offset."""
    return [(num_tokens, float(factor * curve(num_tokens) + offset)) for num_tokens in SIZES]
