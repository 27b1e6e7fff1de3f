"""Mends Triton's interpreter for vLLM's kernels, and saves some of its time."""

import dataclasses
import functools
from typing import Any


def mend() -> None:
    """Replaces functions of the interpreter; vLLM calls it in each of its processes, possibly more than once."""
    from triton.runtime import interpreter

    if getattr(interpreter, "is_mended", False):
        return
    _type_comparisons(interpreter)
    _define_log1p(interpreter)
    _prepare_functions_once(interpreter)
    _save_time(interpreter)
    interpreter.is_mended = True


def _type_comparisons(interpreter: Any) -> None:
    # Triton 3.9 gives a comparison the type of its operands: a mask that is broadcast becomes one of integers, which
    # loads refuse ("mask has unsupported dtype").
    import numpy as np
    import triton.language as tl

    binary_op = interpreter.InterpreterBuilder.binary_op

    def typed(self: Any, left: Any, right: Any, operation: Any) -> Any:
        result = binary_op(self, left, right, operation)
        if result.data.dtype == np.bool_:
            result.dtype = tl.int1
        return result

    interpreter.InterpreterBuilder.binary_op = typed


def _define_log1p(interpreter: Any) -> None:
    # Outside a compiled kernel it returns None.
    import numpy as np
    import triton.language as tl
    from triton.language.extra import libdevice

    def log1p(value: Any) -> Any:
        with np.errstate(divide="ignore", invalid="ignore"):
            return tl.tensor(interpreter.TensorHandle(np.log1p(value.handle.data), value.handle.dtype), value.type)

    libdevice.log1p = log1p


def _prepare_functions_once(interpreter: Any) -> None:
    # Else the functions of Triton's language are replaced at each call of a kernel or of a function in one.
    import triton.language as tl

    prepare = interpreter._patch_lang

    @functools.cache
    def prepare_once(function: Any) -> Any:
        prepare(function)
        # It yields integers, which have no type: vLLM's kernel of top-k and top-p casts them.
        numbers = tl.range
        tl.range = lambda *args, **kwargs: map(interpreter._implicit_cvt, numbers(*args, **kwargs))
        return interpreter._LangPatchScope()

    interpreter._patch_lang = prepare_once


def _save_time(interpreter: Any) -> None:
    # Else additions are computed twice, to look for overflows.
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
    numpy_type = interpreter._get_np_dtype
    numpy_types: dict[str, Any] = {}

    # Types have no hash; else a table of all types is made for each value.
    def known_numpy_type(triton_type: Any) -> Any:
        if triton_type.name not in numpy_types:
            numpy_types[triton_type.name] = numpy_type(triton_type)
        return numpy_types[triton_type.name]

    interpreter._get_np_dtype = known_numpy_type
