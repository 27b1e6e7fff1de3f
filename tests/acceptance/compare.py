"""Latency of the same requests by these load tests and by `vllm bench serve`, vLLM's own client."""

import dataclasses
import itertools
import json
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests.locust_process import child, last_line, run_locust
from loadtests.server import ServerUnderTest
from tests.acceptance.verdicts import Settings, Verdict, texts
from vllm_spec_tools.serving import ServerError, serving_environment

_PART = "compare"
_NUM_TOKENS = 64
# Concurrent requests, and requests of a run of vLLM's client.
_REQUESTS = {1: 20, 8: 80}
_OUR_SECONDS, _STOP_SECONDS = 10.0, 60.0
# Steady changes meanwhile, by a policy that learns or another program, affect both clients alike.
_ORDER = ("vllm", "ours", "ours", "vllm")
_LEAST, _MOST = 0.9, 1.1
# Sum of the requests' latencies by the server's clock, in seconds, and the number of requests.
_SECONDS, _ENDED = (f"vllm:e2e_request_latency_seconds_{name}" for name in ("sum", "count"))


@dataclass(frozen=True)
class Run:
    """Latency of one run's requests, in milliseconds.

    Attributes:
        latency: mean from asking to the last token, as the client measured it.
        served: mean latency by the server's own clock, which no slow client affects; NaN if it is not exported.
    """

    latency: float
    requests: int
    failed: int
    tokens: int
    served: float = math.nan


def run_compare(base_url: str, model: str, settings: Settings) -> Iterator[Verdict]:
    """Measures the latency of the same requests with both clients.

    Raises:
        ServerError: a client wrote no result.
        ServerNotThereError: the server's metrics cannot be read.
    """
    prompts, server = texts("code", "edit", "extract"), ServerUnderTest(base_url)
    for concurrency, count in _REQUESTS.items():
        runs: dict[str, list[Run]] = {client: [] for client in _ORDER}
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
            seconds, ended = (after.increase(before, name) or math.nan for name in (_SECONDS, _ENDED))
            if number:
                runs[client].append(dataclasses.replace(found, served=1000 * seconds / ended))
        yield latency_check(_PART, concurrency, runs["ours"], runs["vllm"])


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
    return Run(1000 * total["e2e"]["mean"], total["succeeded"], failed, total["output_tokens"])


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
    counts = (int(result[name]) for name in ("completed", "failed", "total_output_tokens"))
    return Run(float(result["mean_e2el_ms"]), *counts)


def latency_check(part: str, concurrency: int, ours: Sequence[Run], theirs: Sequence[Run]) -> Verdict:
    """Checks that both clients measured the same mean latency within 10%.

    The server's speed differs by a fifth between runs of a few seconds, so the clients' means are compared as
    multiples of the server's own.
    """
    runs = [*ours, *theirs]
    same_work = all(run.requests and run.tokens == _NUM_TOKENS * run.requests and not run.failed for run in runs)
    ratio = _over_served(ours) / _over_served(theirs)
    shown = [
        f"mean ours {_shown(ours, 'latency')}, vllm bench {_shown(theirs, 'latency')} ms",
        f"mean by the server itself {_shown(ours, 'served')}, {_shown(theirs, 'served')} ms",
        f"ratio of the means over the server's {ratio:.3f}",
    ]
    if not same_work:
        works = ", ".join(f"{run.requests} {run.tokens} {run.failed}" for run in runs)
        shown.append(f"requests, tokens, failed of each run: {works}")
    passed = same_work and _LEAST <= ratio <= _MOST
    return Verdict(part, f"latency at concurrency {concurrency} is that of vllm bench serve", passed, "; ".join(shown))


def _over_served(runs: Sequence[Run]) -> float:
    return statistics.fmean(run.latency / run.served for run in runs)


def _shown(runs: Sequence[Run], name: str) -> str:
    return " and ".join(f"{getattr(run, name):.2f}" for run in runs)


def _no_result(name: str, status: int | None, result: Path) -> ServerError:
    log = result.with_suffix(".log")
    return ServerError(f"{name} ended with {status} and no result; log: {log}; its last line: {last_line(log)}")
