"""Starts and stops `vllm serve`: for the demo, the tests, the benchmarks and `make serve`."""

import argparse
import contextlib
import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, Self

import httpx
from rich.console import Console
from rich.markup import escape

from vllm_spec_plugin.compat.installed import installed_version, is_cpu_build
from vllm_spec_plugin.register.version import check_vllm
from vllm_spec_plugin.schema.errors import UserError
from vllm_spec_tools.engines.processes import LoggedProcess, quoted_lines
from vllm_spec_tools.engines.server_metrics import ServerMetrics

HOST = "127.0.0.1"
KV_SPACE = "VLLM_CPU_KVCACHE_SPACE"  # GiB of an engine's KV cache on a CPU
_TAIL_LINES = 30
_SHUTDOWN_SECONDS = 30  # that open requests have to finish after SIGTERM
_POLL_SECONDS = 0.2


class ServerError(UserError, RuntimeError):
    """A server could not be started; the message says why and shows the end of its log."""


def runs_on_cpu() -> bool:
    """Whether the installed vLLM is its CPU build.

    Raises:
        ConfigError: no supported vLLM is installed.
    """
    check_vllm()
    return is_cpu_build(installed_version())


def cpu_environment(offline: bool = True) -> dict[str, str]:
    """Variables that a vLLM process needs on a CPU and that are not set; nothing where vLLM runs on a GPU.

    Args:
        offline: the model lies on this machine, so the Hugging Face hub is not contacted.
    """
    if not runs_on_cpu():
        return {}
    variables = {
        # vLLM would keep a core for the API server, which is idle while a token is computed.
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        KV_SPACE: "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    if offline:
        variables["HF_HUB_OFFLINE"] = "1"
    # Intel's OpenMP keeps its threads spinning between operators: twice the tokens per second of GNU's.
    openmp = Path(sys.prefix) / "lib" / "libiomp5.so"
    if openmp.is_file():
        variables["LD_PRELOAD"] = str(openmp)
    return {name: value for name, value in variables.items() if name not in os.environ}


def serve_command(
    model: str | Path, speculative_config: str | Path | None, port: int, extra_args: Iterable[str] = ()
) -> list[str]:
    """The `vllm serve` command line, for the vLLM that is installed beside this interpreter.

    Args:
        extra_args: further `vllm serve` arguments; they override options that are set here.

    Raises:
        ServerError: there is no `vllm` command, or no folder where `model` is plainly a path.
        ConfigError: no supported vLLM is installed.
    """
    if str(model).startswith(("/", "./", "../", "~")) and not Path(model).is_dir():
        raise ServerError(f"no model folder {model}")
    executable = Path(sys.executable).parent / "vllm"
    if not executable.is_file():
        raise ServerError(f"no `vllm` command beside {sys.executable}: run `make setup`")
    extra = list(extra_args)
    given = {argument.split("=", 1)[0].replace("_", "-") for argument in extra if argument.startswith("--")}
    options = {"--host": HOST, "--port": str(port)}
    if speculative_config is not None:
        options["--speculative-config"] = str(speculative_config)
    if runs_on_cpu():
        # bfloat16 has no fast path without AVX-512, and the memory a container reports may be less than it has.
        options |= {"--dtype": "float32", "--gpu-memory-utilization": "0.5", "--max-model-len": "auto"}
    chosen = [part for option, value in options.items() if option not in given for part in (option, value)]
    return [str(executable), "serve", str(model), *chosen, *extra]


def serving_environment(model: str | Path) -> dict[str, str]:
    """This process's environment with what serving `model` needs in addition."""
    return dict(os.environ) | cpu_environment(offline=Path(model).is_dir())


def free_port() -> int:
    """A TCP port of the loopback interface that nothing listens on now."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        port: int = listener.getsockname()[1]
        return port


class Server:
    """A running `vllm serve`, as a context manager: answering when entered, gone when left.

    Attributes:
        log_path: where the server's output goes. A log of its own choosing is deleted after a clean run.
    """

    def __init__(
        self,
        model: str | Path,
        speculative_config: str | Path | None = None,
        *,
        port: int = 0,
        extra_args: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        timeout: float = 300.0,
        log_path: Path | None = None,
        console: Console | None = None,
    ) -> None:
        """Prepares a server; nothing is started before the context is entered.

        Args:
            port: 0 for one that is free.
            timeout: seconds to wait for the server's first answer.
            log_path: file for the server's output; replaced if it exists.
        """
        self.model = str(model)
        self.speculative_config = speculative_config
        self.extra_args = tuple(extra_args)
        self.environment = dict(environment or {})
        self.timeout = timeout
        self.port = port
        self._deletes_log = log_path is None
        self.log_path = log_path or Path(tempfile.gettempdir()) / f"vllm-serve-{os.getpid()}-{id(self):x}.log"
        self._console = console or Console(stderr=True)
        self._process: LoggedProcess | None = None
        # A proxy that the environment names is not for a server on this machine.
        self._client = httpx.Client(trust_env=False, timeout=10.0)

    @property
    def base_url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def command(self) -> list[str]:
        """The command line of the server process."""
        return serve_command(self.model, self.speculative_config, self.port, self.extra_args)

    def start(self) -> None:
        """Starts the server and returns when it answers.

        Raises:
            ServerError: it ended before, or did not answer in time, or its port is taken. Nothing is left running.
        """
        if self.port == 0:
            self.port = free_port()
        else:
            _check_port(self.port)
        try:
            environment = serving_environment(self.model) | self.environment
            self._process = LoggedProcess(self.command(), environment, self.log_path)
            with self._console.status(f"starting vllm serve {escape(self.model)} (about a minute)"):
                self._wait_until_healthy(self._process)
        except BaseException:
            self.stop(keep_log=True)
            raise

    def _wait_until_healthy(self, process: LoggedProcess) -> None:
        deadline = time.monotonic() + self.timeout
        while True:
            if process.poll() is not None:
                raise self._error(f"the server ended with exit status {process.returncode} before it answered")
            with contextlib.suppress(httpx.TransportError):
                if self._client.get(f"{self.base_url}/health", timeout=2.0).is_success:
                    return
            if time.monotonic() > deadline:
                raise self._error(f"the server did not answer within {self.timeout:.0f} s")
            time.sleep(_POLL_SECONDS)

    def _error(self, what: str) -> ServerError:
        lines = self.log_path.read_text(errors="replace").splitlines()
        # vLLM ends with "Engine core initialization failed. See root cause above": show that cause as well.
        named = re.compile(r"\b\w+(Error|Exception): ")
        causes = [line for line in lines[:-_TAIL_LINES] if named.search(line) and "WARNING" not in line]
        shown = quoted_lines([*dict.fromkeys(causes[-3:]), *(["..."] if causes else []), *lines[-_TAIL_LINES:]])
        return ServerError(f"{what}\n  command: {' '.join(self.command())}\n  log: {self.log_path}\n{shown}")

    def stop(self, grace: float = 20.0, keep_log: bool = False) -> None:
        """Ends the server and every process it started; does nothing if it is not running.

        Args:
            grace: seconds it has to end by itself before it is killed.
        """
        process, self._process = self._process, None
        if process is not None and process.end(grace) and self._deletes_log and not keep_log:
            self.log_path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        self.stop(keep_log=kind is not None)
        self._client.close()

    def metrics(self) -> dict[str, float]:
        """The server's Prometheus samples by name, summed over labels; histogram buckets are left out."""
        response = self._client.get(f"{self.base_url}/metrics")
        response.raise_for_status()
        return dict(ServerMetrics.parse(response.text).totals)


def _check_port(port: int) -> None:
    with socket.socket() as listener:
        # As servers do: a port whose last connections are still closing can be listened on.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except (OSError, OverflowError) as error:
            raise ServerError(f"port {port} cannot be listened on ({error}): choose another") from None


def _exec_serve(arguments: Sequence[str]) -> NoReturn:
    """Becomes `vllm serve`: the terminal's signals then reach it directly."""
    from vllm_spec_tools.engines.model_source import model_source

    parser = argparse.ArgumentParser(
        prog="python -m vllm_spec_tools.engines.serving",
        description="Run `vllm serve` in the foreground with a plugin.yaml. Other options go to `vllm serve`.",
        allow_abbrev=False,
    )
    parser.add_argument("--config", help="a plugin.yaml, or JSON; without it there is no speculation")
    parser.add_argument("--model", help="a folder, a hub name, or smollm2 (default: the bundled target)")
    parser.add_argument("--port", type=int, default=8000)
    options, extra = parser.parse_known_args(arguments)
    if options.config and not options.config.lstrip().startswith("{") and not Path(options.config).is_file():
        parser.error(f"--config {options.config}: no such file in {Path.cwd()}")
    try:
        model = model_source("--model", options.model, "target")
        _check_port(options.port)
        extra = ["--shutdown-timeout", str(_SHUTDOWN_SECONDS), *extra]
        command, environment = serve_command(model, options.config, options.port, extra), serving_environment(model)
    except UserError as error:
        parser.exit(2, f"error: {error}\n")
    print(" ".join(command), flush=True)
    os.execve(command[0], command, environment)


if __name__ == "__main__":
    _exec_serve(sys.argv[1:])
