"""Random cases of a test. They need numpy only."""

import functools
import inspect

import numpy as np

from tests.sizes import examples


def random_cases(default, full):
    """Runs a test with its argument `rng`, a numpy generator, once per seed: `default` times, or with --full `full`."""

    def repeated(test):
        signature = inspect.signature(test)

        @functools.wraps(test)
        def run(**given):
            for seed in range(examples(default, full)):
                try:
                    test(rng=np.random.default_rng(seed), **given)
                except Exception as error:
                    error.add_note(f"of random case {seed}")
                    raise

        # What pytest is asked for: all but the generator.
        rest = [parameter for name, parameter in signature.parameters.items() if name != "rng"]
        run.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return run

    return repeated
