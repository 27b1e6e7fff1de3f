"""Small KV caches of the plugin."""

import math

from vllm.v1.request import RequestStatus

from tests.unit.scheduling.cases import BLOCK_SIZE, FULL, MAX_MODEL_LEN, kv_cache_config
from vllm_spec_plugin.v1.kv.manager import SpecKVCacheManager


def make_manager(num_blocks, *specs, cls=SpecKVCacheManager):
    specs = specs or (FULL,)
    return cls(
        kv_cache_config=kv_cache_config(num_blocks, *specs),
        max_model_len=MAX_MODEL_LEN,
        scheduler_block_size=math.lcm(*(spec.block_size for spec in specs)),
        hash_block_size=BLOCK_SIZE,
        max_in_flight_tokens=16,
        enable_caching=True,
    )


def start(manager, new, num_tokens=None):
    """Admits a request and computes the beginning of its prompt, all but what the prefix cache has by default."""
    found, num_cached, _ = manager.get_computed_blocks(new)
    count = (num_tokens or new.num_tokens) - num_cached
    allocated = manager.allocate_slots(new, count, num_cached, found, has_scheduled_reqs=False)
    if allocated is not None:
        new.status = RequestStatus.RUNNING
        new.num_computed_tokens = num_cached + count
    return allocated
