"""Which requests have keys and values that a KV connector loads."""

from tests.unit.scheduling.cases import BLOCK_SIZE, prompt, request
from tests.v1.kv.pool import make_manager
from vllm_spec_plugin.v1.kv.manager import ConnectedKVCacheManager


def allocate(manager, name, num_loaded, num_new):
    """Admits a request of which the connector has `num_loaded` tokens."""
    admitted = request(name, prompt(1, num_loaded + num_new))
    found, num_found = manager.get_computed_blocks(admitted)[:2]
    blocks = manager.allocate_slots(
        admitted,
        num_new,
        num_new_computed_tokens=num_found,
        new_computed_blocks=found,
        num_external_computed_tokens=num_loaded,
    )
    assert blocks is not None
    return admitted


def test_tokens_before_those_that_are_loaded_are_told_once():
    manager = make_manager(10, cls=ConnectedKVCacheManager)
    allocate(manager, "a", 2 * BLOCK_SIZE, 1)
    assert manager.take_loaded(["b"]) == {}
    assert manager.take_loaded(["a", "b"]) == {"a": 0}
    assert manager.take_loaded(["a"]) == {}


def test_nothing_is_told_of_requests_without_loaded_tokens_or_that_end_before_they_run():
    manager = make_manager(10, cls=ConnectedKVCacheManager)
    allocate(manager, "a", 0, 3)
    waiting = allocate(manager, "b", BLOCK_SIZE, 1)
    manager.free(waiting)
    assert manager.take_loaded(["a", "b"]) == {}
