"""A device that computes on the CPU and, like a GPU, refuses an operation on tensors of two devices.

Where there is no GPU, `--device pretended` finds tensors that were made on the wrong device. torch's own name for the
device is "meta": of the devices that CPU builds know, the only one that nothing else here uses.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")
_aten = torch.ops.aten
# Copies; and a GPU's tensors can be indexed with the CPU's, but not the other way round.
_COPIES = {_aten.copy_.default, _aten._to_copy.default}
_INDEXES = {_aten.index.Tensor, _aten.index_put_.default, _aten._index_put_impl_.default}
# Operations after which the host waits for the device: it reads a number, or has to know the size of the result.
_WAITING = {_aten._local_scalar_dense.default, _aten.nonzero.default, _aten.masked_select.default, _aten.equal.default}
# Since the test began to listen.
_waits: list[str] = []


class _OnDevice(torch.Tensor):
    """A tensor there.

    Attributes:
        values: its values, on the CPU.
    """

    values: torch.Tensor  # type: ignore[assignment]
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, values: torch.Tensor) -> "_OnDevice":
        made: _OnDevice = torch.Tensor._make_wrapper_subclass(
            cls, values.shape, values.stride(), values.storage_offset(), dtype=values.dtype, device=DEVICE
        )
        made.values = values
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return _run(func, args, kwargs or {})

    def tolist(self) -> Any:
        _waits.append("tolist")
        return self.values.tolist()

    def __repr__(self) -> str:  # type: ignore[override]
        return repr(self.values)


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
    here = [tensor for tensor in tensors if isinstance(tensor, _OnDevice)]
    # Tensors without dimensions are numbers, which may be anywhere.
    elsewhere = [tensor for tensor in tensors if tensor.dim() and not isinstance(tensor, _OnDevice)]
    may_mix = func in _COPIES or (func in _INDEXES and isinstance(args[0], _OnDevice))
    if here and elsewhere and not may_mix:
        raise RuntimeError(f"expected all tensors to be on the same device, but found two: {func}")
    is_result_here = isinstance(args[0], _OnDevice) if func is _aten.copy_.default else bool(here)
    if (device := kwargs.get("device")) is not None:
        is_result_here = torch.device(device) == DEVICE
        kwargs = kwargs | {"device": torch.device("cpu")}
    masks = here and func in _INDEXES and any(tensor.dtype == torch.bool for tensor in tree_leaves(args[1]))
    if here and (func in _WAITING or masks or (func in _COPIES and not is_result_here)):
        _waits.append(str(func))
    known = {id(tensor.values): tensor for tensor in here}

    def result(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not is_result_here:
            return value
        # What an operation in place returns is the tensor that it was given.
        return known[id(value)] if id(value) in known else _OnDevice(value)

    args, kwargs = tree_map(lambda value: value.values if isinstance(value, _OnDevice) else value, (args, kwargs))
    return tree_map(result, func(*args, **kwargs))


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Literals(TorchFunctionMode):
    """torch makes tensors from numbers without asking a dispatch mode: on the CPU then, and moved."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.tensor, torch.as_tensor) and kwargs.get("device") == DEVICE:
            return func(*args, **kwargs | {"device": "cpu"}).to(DEVICE)
        return func(*args, **kwargs)


@contextlib.contextmanager
def waits() -> Iterator[list[str]]:
    """Gives a list that is filled, within it, with the operations that a host would wait for a GPU at."""
    _waits.clear()
    yield _waits


@contextlib.contextmanager
def pretended() -> Iterator[torch.device]:
    """Within it the device can be used."""
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        with _Operations(), _Literals():
            yield DEVICE
    finally:
        torch._C._set_only_lift_cpu_tensors(False)
