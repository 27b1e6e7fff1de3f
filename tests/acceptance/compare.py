"""Compares these load tests with `vllm bench serve`, vLLM's own client, on the same requests.

Both must count what the server counts. Their latencies are only reported: on a busy machine a client reads late.
"""

import itertools
import json
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from loadtests.locust_process import child, last_line, run_locust
from loadtests.server import COUNTERS, ServerUnderTest
from tests.acceptance.verdicts import Settings, Verdict, texts
from vllm_spec_tools.engines.server_metrics import ServerMetrics
from vllm_spec_tools.engines.serving import ServerError, serving_environment

_PART = "compare"
_NUM_TOKENS = 64
# Concurrent requests, and requests of a run of vLLM's client.
_REQUESTS = {1: 20, 8: 80}
_OUR_SECONDS, _STOP_SECONDS = 10.0, 60.0
# Steady changes meanwhile, by a policy that learns or another program, affect both clients alike.
_ORDER = ("vllm", "ours", "ours", "vllm")
# Sum of the requests' latencies by the server's clock, in seconds, and the number of requests.
_SECONDS, _ENDED = (f"vllm:e2e_request_latency_seconds_{name}" for name in ("sum", "count"))
# A client's latency includes the server's; less is a fault of measuring, whatever the machine does beside.
_LEAST = 0.98


@dataclass(frozen=True)
class Run:
    """Requests of one run, as the client or the server counts them.

    Attributes:
        latency: mean seconds from request to last token; NaN if not exported.
    """

    latency: float
    requests: int
    tokens: int
    failed: int = 0


class Pair(NamedTuple):
    """One run, counted twice."""

    client: Run
    server: Run


def run_compare(base_url: str, model: str, settings: Settings) -> Iterator[Verdict]:
    """Measures the latency of the same requests with both clients.

    Raises:
        ServerError: a client wrote no result.
        ServerNotThereError: the server's metrics cannot be read.
    """
    prompts, server = texts("code", "edit", "extract"), ServerUnderTest(base_url)
    for concurrency, count in _REQUESTS.items():
        runs: dict[str, list[Pair]] = {client: [] for client in _ORDER}
        # The first run warms the server up and does not count.
        for number, client in enumerate(("ours", *_ORDER)):
            settings.say(f"compare: {client}, concurrency {concurrency}, run {number} of {len(_ORDER)}")
            prefix = settings.out / f"compare-{client}-{concurrency}-{number}"
            before = server.idle_metrics()
            if client == "ours":
                found = run_ours(prompts, concurrency, base_url, prefix)
            else:
                found = _run_vllm_bench(prompts, count, concurrency, base_url, model, prefix)
            after = server.idle_metrics()
            if number:
                runs[client].append(Pair(found, served(before, after)))
        yield from comparison(_PART, concurrency, runs["ours"], runs["vllm"])


def served(before: ServerMetrics, after: ServerMetrics) -> Run:
    """Returns the run between two scrapes, by the server's own counters and clock."""
    seconds, ended = (after.increase(before, name) or math.nan for name in (_SECONDS, _ENDED))
    requests, tokens = (int(after.increase(before, COUNTERS[name]) or 0) for name in ("requests", "output_tokens"))
    return Run(seconds / ended, requests, tokens)


def run_ours(prompts: Sequence[str], concurrency: int, base_url: str, prefix: Path) -> Run:
    """Measures with Locust, in a closed loop.

    Raises:
        ServerError: Locust wrote no report.
    """
    asked, report = prefix.with_suffix(".jsonl"), prefix.with_suffix(".json")
    asked.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    options = ["-u", str(concurrency), "-r", "100", "--prompts", str(asked), "--max-tokens", str(_NUM_TOKENS)]
    options += ["--temperature", "0", "--body", '{"ignore_eos": true}']
    status, found = run_locust(base_url, _OUR_SECONDS, _STOP_SECONDS, report, options)
    if found is None or found["all"]["e2e"] is None:
        raise _no_result("our client", status, report)
    total = found["all"]
    failed = total["requests"] - total["succeeded"]
    return Run(total["e2e"]["mean"], total["succeeded"], total["output_tokens"], failed)


def _run_vllm_bench(
    prompts: Sequence[str], count: int, concurrency: int, base_url: str, model: str, prefix: Path
) -> Run:
    asked, result = prefix.with_suffix(".prompts.json"), prefix.with_suffix(".json")
    asked.write_text(sharegpt(list(itertools.islice(itertools.cycle(prompts), count))))
    result.unlink(missing_ok=True)
    command = [
        *(str(Path(sys.executable).parent / "vllm"), "bench", "serve", "--backend", "openai"),
        *("--base-url", base_url, "--model", model),
        *("--dataset-name", "sharegpt", "--dataset-path", str(asked), "--disable-shuffle"),
        *("--num-prompts", str(count), "--sharegpt-output-len", str(_NUM_TOKENS)),
        *("--max-concurrency", str(concurrency), "--temperature", "0", "--ignore-eos", "--disable-tqdm"),
        *("--percentile-metrics", "e2el"),
        *("--save-result", "--result-dir", str(result.parent), "--result-filename", result.name),
    ]
    with child(command, prefix.with_suffix(".log"), serving_environment(model)) as process:
        status = process.wait()
    try:
        return run_of(json.loads(result.read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        raise _no_result("vllm bench serve", status, result) from None


def sharegpt(prompts: Sequence[str]) -> str:
    """Prompts in the ShareGPT format, which `vllm bench serve` reads without pandas.

    The second turn only makes an entry valid; the output length is given on the command line.
    """
    turns = [[{"from": "human", "value": prompt}, {"from": "gpt", "value": "x"}] for prompt in prompts]
    return json.dumps([{"conversations": conversation} for conversation in turns])


def run_of(result: Mapping[str, Any]) -> Run:
    """Reads what `vllm bench serve --save-result` wrote.

    Raises:
        KeyError: a figure is missing.
    """
    counts = (int(result[name]) for name in ("completed", "total_output_tokens", "failed"))
    return Run(float(result["mean_e2el_ms"]) / 1000, *counts)


def comparison(part: str, concurrency: int, ours: Sequence[Pair], theirs: Sequence[Pair]) -> Iterator[Verdict]:
    """Compares runs of both clients with the server's own counts, and reports the clients' latencies."""
    pairs, at = [*ours, *theirs], f"at concurrency {concurrency}"
    shown = [
        f"{client.requests} requests, {client.tokens} tokens, {client.failed} failed "
        f"(server: {server.requests}, {server.tokens})"
        for client, server in pairs
    ]
    agree = all(map(_agrees, pairs))
    yield Verdict(part, f"{at} our client and vllm bench serve count what the server counts", agree, "; ".join(shown))
    over = [[pair.client.latency / pair.server.latency for pair in runs] for runs in (ours, theirs)]
    shown = [" and ".join(f"{ratio:.3f}" for ratio in ratios) for ratios in over]
    figures = f"multiples of it: ours {shown[0]}, vllm bench {shown[1]}"
    least = all(ratio >= _LEAST for ratios in over for ratio in ratios)
    yield Verdict(part, f"{at} no client's latency is below the server's", least, figures)
    factor = statistics.fmean(over[0]) / statistics.fmean(over[1])
    figures = f"ours {_shown(ours)}, vllm bench {_shown(theirs)} ms; multiples of the server's: {factor:.3f} to 1"
    yield Verdict(part, f"{at} latency by both clients", None, figures)


def _agrees(pair: Pair) -> bool:
    """Whether the client has all tokens of at least one request, and counts what the server counts."""
    client, server = pair
    is_complete = client.requests > 0 and not client.failed and client.tokens == _NUM_TOKENS * client.requests
    return is_complete and (client.requests, client.tokens) == (server.requests, server.tokens)


def _shown(runs: Sequence[Pair]) -> str:
    return " and ".join(f"{1000 * pair.client.latency:.2f}" for pair in runs)


def _no_result(name: str, status: int | None, result: Path) -> ServerError:
    log = result.with_suffix(".log")
    return ServerError(f"{name} ended with {status} and no result; log: {log}; its last line: {last_line(log)}")
