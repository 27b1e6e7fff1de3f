"""Starts engines as forks of a process that has imported vLLM, which takes ten seconds and a gigabyte each otherwise.

`python -m tests.engine.forks`, with a listening socket as standard input, imports and waits. `python forks.py SOCKET -m
MODULE ARGUMENT...` is then `python -m MODULE ARGUMENT...` in a fork of it, with its own environment, working directory
and standard streams. The two end together.
"""

import gc
import importlib
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# What every engine imports in the end. None of it starts a thread.
_MODULES = (
    *("vllm", "vllm.entrypoints.llm", "vllm.v1.engine.core", "vllm.v1.worker.cpu_worker", "vllm.v1.outputs"),
    *("vllm.model_executor.models.llama", "compressed_tensors", "xgrammar", "prometheus_client"),
    *("vllm.entrypoints.openai.responses.serving", "vllm.v1.engine.async_llm", "vllm.v1.attention.backends.cpu_attn"),
    *("vllm.entrypoints.cli.main", "vllm.entrypoints.openai.api_server", "vllm.v1.executor.multiproc_executor"),
    *("vllm.model_executor.layers.quantization.online.base", "vllm.lora.resolver", "numba"),
    *("vllm_spec_plugin.register.plugin", "vllm_spec_plugin.scheduling.adapter", "vllm_spec_plugin.gate.gate"),
    *("vllm_spec_plugin.register.frontend", "vllm_spec_plugin.proposers.registry", "vllm_spec_tools.engines.jobs"),
)
_SECONDS_BETWEEN_CHECKS = 2.0


class ForkServer:
    """The process that is forked.

    Attributes:
        python: the command that stands for the interpreter's.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        """Starts it; who connects before it has imported everything waits.

        Args:
            folder: for the socket and the log.
            environment: of the process.
        """
        path = str(folder / "forks")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            command = [sys.executable, "-m", "tests.engine.forks"]
            with (folder / "forks.log").open("wb") as log:
                self._process = subprocess.Popen(
                    command, stdin=listener.fileno(), stdout=log, stderr=log, env=environment
                )
        self.python = (sys.executable, "-E", "-S", __file__, path)

    def stop(self) -> None:
        """Ends it; its forks end with those who asked for them."""
        self._process.kill()
        self._process.wait()


def _serve() -> None:
    from tests.cores import inspect_models_here

    listener, parent = socket.socket(fileno=0), os.getppid()
    for name in _MODULES:
        importlib.import_module(name)
    inspect_models_here()
    _hide_numba()
    # So that the processes of a server are forks of it, too.
    context = multiprocessing.get_context
    vars(multiprocessing)["get_context"] = lambda method=None: context("fork" if method == "spawn" else method)
    # Forks collect garbage when they start, each time through all that is imported here.
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener.settimeout(_SECONDS_BETWEEN_CHECKS)
    while os.getppid() == parent:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        connection.settimeout(None)
        size, streams, _, _ = socket.recv_fds(connection, 8, 3)
        request = pickle.loads(_receive(connection, int.from_bytes(size)))
        if os.fork() == 0:
            listener.detach()
            _become(connection, streams, *request)
        connection.close()
        for stream in streams:
            os.close(stream)


def _hide_numba() -> None:
    """Has vLLM look for its kernels in all modules but numba's, whose objects it stumbles over."""
    from vllm.triton_utils import dispatcher

    rebind = dispatcher._rebind_kernels

    def rebind_elsewhere(*args: Any) -> None:
        names = [name for name in sys.modules if name.partition(".")[0] in ("numba", "llvmlite")]
        hidden = {name: sys.modules.pop(name) for name in names}
        rebind(*args)
        sys.modules.update(hidden)

    vars(dispatcher)["_rebind_kernels"] = rebind_elsewhere


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += connection.recv(size - len(data))
    return data


def _become(
    connection: socket.socket, streams: list[int], arguments: list[str], environment: dict[str, str], folder: str
) -> None:
    import runpy
    import traceback

    status: Any = 0
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:0] = environment.get("PYTHONPATH", "").split(os.pathsep)
        os.chdir(folder)
        threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
        sys.argv = arguments
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
        status = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        connection.sendall(bytes([status if isinstance(status, int) else 1]))
        os._exit(0)


def _end_with(connection: socket.socket) -> None:
    if not connection.recv(1):
        os.killpg(0, signal.SIGKILL)


def _run(path: str, arguments: list[str]) -> int:
    """Runs a module in a fork of the process that listens at `path`; its exit status, 1 if it was killed."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        request = pickle.dumps((arguments, dict(os.environ), str(Path.cwd())))
        socket.send_fds(connection, [len(request).to_bytes(8)], [0, 1, 2])
        connection.sendall(request)
        status = connection.recv(1)
    return status[0] if status else 1


if __name__ == "__main__":
    if len(sys.argv) == 1:
        _serve()
    else:
        sys.exit(_run(sys.argv[1], sys.argv[3:]))
