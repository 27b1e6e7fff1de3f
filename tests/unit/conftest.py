"""Makes many small tests quick."""

import atexit
import gc
import logging
import sys
from collections.abc import Iterator

import pytest

from tests.cores import inspect_models_here

# torch and vLLM make millions of objects that stay; looking through them for garbage again and again takes seconds.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    # Else extension modules report what was frozen as leaked.
    atexit.register(gc.unfreeze)
    gc.enable()
    inspect_models_here()
    # pytest hooks itself into each logger that keeps its records to itself, six times per test; torch has a hundred.
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("torch") and isinstance(logger, logging.Logger):
            logger.propagate = True


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    """Tensors are small: a second thread only waits for the first. Tests without torch need not import it for this."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _warnings_reach_caplog() -> None:
    """Commands import vLLM with its logs at ERROR, and loggers stay as they were set first."""
    logger = logging.getLogger("vllm")
    if logger.level > logging.INFO:
        logger.setLevel(logging.INFO)
