"""Measures the memory that a served engine's processes have in use; vLLM loads this as a plugin in each of them.

Resident memory is no measure of it. The allocator keeps up to 200 MB of free memory in a worker, which come and go,
and the kernel drops and rereads 100 MB of libraries' pages. So each process collects garbage, gives free memory
back and reads its allocators' own counts.
"""

import ctypes
import gc
import os
import socket
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import psutil

_ROOT = Path(__file__).parents[2]
_ENTRY_POINT = Path(__file__).parent / "vllm_plugin"
_FOLDER = "TEST_LIVE_MEMORY"
_TIMEOUT_S = 60


class LiveMemory(NamedTuple):
    """Memory of a process after garbage collection.

    Attributes:
        resident_bytes: Anonymous resident memory after free memory was given back to the kernel.
        allocated_bytes: Memory in use by C's allocator: tensors, arrays, native objects.
        python_blocks: Number of memory blocks in use by Python objects.
    """

    resident_bytes: int
    allocated_bytes: int
    python_blocks: int


class _Allocated(ctypes.Structure):
    """The result of glibc's `mallinfo2`, in bytes."""

    _fields_ = (
        ("arenas", ctypes.c_size_t * 4),
        ("mapped", ctypes.c_size_t),
        ("unused", ctypes.c_size_t * 2),
        ("in_arenas", ctypes.c_size_t),
        ("free", ctypes.c_size_t * 2),
    )


def environment(folder: Path) -> dict[str, str]:
    """Returns the environment variables with which a server can be measured.

    Args:
        folder: for the sockets on which its processes answer.
    """
    path = [str(_ENTRY_POINT), str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(path), _FOLDER: str(folder)}


def register() -> None:
    """Starts to answer; vLLM calls it in each of its processes."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(_socket(Path(os.environ[_FOLDER]), os.getpid())))
    listener.listen()
    threading.Thread(target=_answer, args=(listener,), name="live_memory", daemon=True).start()


def measure(folder: Path) -> dict[str, LiveMemory]:
    """Measures each process that answers in `folder`, by its name. All must be idle."""
    found = {}
    for path in sorted(folder.glob("*.sock")):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_TIMEOUT_S)
            try:
                connection.connect(str(path))
            except ConnectionRefusedError:
                # vLLM inspects a model's class in a process of its own, which has ended.
                continue
            numbers = connection.makefile().read().split()
        found[psutil.Process(int(path.stem)).name()] = LiveMemory(*map(int, numbers))
    return found


def _answer(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(" ".join(map(str, _own())).encode())


def _own() -> LiveMemory:
    gc.collect()
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _Allocated
    libc.malloc_trim(0)
    allocated = libc.mallinfo2()
    [resident] = [line for line in Path("/proc/self/status").read_text().splitlines() if "RssAnon" in line]
    kilobytes = int(resident.split()[1])
    return LiveMemory(kilobytes * 1024, allocated.mapped + allocated.in_arenas, sys.getallocatedblocks())


def _socket(folder: Path, pid: int) -> Path:
    return folder / f"{pid}.sock"
