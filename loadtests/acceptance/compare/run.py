"""Alternates both clients on one server."""

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial

from loadtests.acceptance.compare.figures import Tpot, tpot_check
from loadtests.acceptance.compare.ours import run_ours
from loadtests.acceptance.compare.vllm_bench import run_vllm_bench
from loadtests.acceptance.compare.workload import workload
from loadtests.acceptance.metrics import grown, settled_text
from loadtests.acceptance.prompts import texts
from loadtests.acceptance.settings import Settings
from loadtests.acceptance.verdicts import Verdict
from vllm_spec_plugin.tools.server_metrics import ServerMetrics

_PART = "compare"
_NUM_TOKENS = 64
# Requests of a run by how many there are at once.
_REQUESTS = {1: 20, 8: 80}
# What changes steadily meanwhile, a policy that learns or another program, does as much to both.
_ORDER = ("vllm", "ours", "ours", "vllm")
# Of requests that ended: the sum of their times per output token by the server's clock, in seconds, and their number.
_SECONDS, _ENDED = (f"vllm:request_time_per_output_token_seconds_{name}" for name in ("sum", "count"))


def run_compare(base_url: str, model: str, settings: Settings) -> Iterator[Verdict]:
    """Measures the time per output token of the same requests with both clients.

    Args:
        base_url: of the server.
        model: its name, and its tokenizer's folder.
        settings: where files go.

    Raises:
        ClientError: one of the clients failed.
    """
    prompts = texts(("code", "edit", "extract"))
    for concurrency, count in _REQUESTS.items():
        work = workload(prompts, count, _NUM_TOKENS, concurrency)
        runs: dict[str, list[Tpot]] = {client: [] for client in _ORDER}
        with settings.console.status("") as status:
            status.update(f"compare: warming up for concurrency {concurrency}")
            run_ours(work, base_url, model, settings.out / f"ours-{concurrency}-0")
            for number, client in enumerate(_ORDER, 1):
                status.update(f"compare: {client}, concurrency {concurrency}, run {number} of {len(_ORDER)}")
                name, run = ("ours", run_ours) if client == "ours" else ("vllm-bench", run_vllm_bench)
                prefix = settings.out / f"{name}-{concurrency}-{number}"
                runs[client].append(_beside_the_server(base_url, partial(run, work, base_url, model, prefix)))
        yield tpot_check(_PART, concurrency, runs["ours"], runs["vllm"])


def _beside_the_server(base_url: str, run: Callable[[], Tpot]) -> Tpot:
    """A run, with what the server says of it."""
    before = ServerMetrics.parse(settled_text(base_url))
    found = run()
    after = ServerMetrics.parse(settled_text(base_url))
    seconds, ended = (grown(before, after, name) for name in (_SECONDS, _ENDED))
    return dataclasses.replace(found, served=1000 * seconds / ended if seconds and ended else None)
