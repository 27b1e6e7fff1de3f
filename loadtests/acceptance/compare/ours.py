"""The load tests' own client in a closed loop of threads."""

import dataclasses
import json
import queue
import sys
import threading
from pathlib import Path

from loadtests.acceptance.compare.client_process import measured_by
from loadtests.acceptance.compare.figures import Tpot
from loadtests.acceptance.compare.workload import Workload
from loadtests.stream.client import COMPLETIONS, StreamingClient
from loadtests.stream.summary import summarise
from loadtests.stream.timing import Measures, measure


def run_ours(work: Workload, base_url: str, model: str, prefix: Path) -> Tpot:
    """Makes the requests in a process of its own, as `vllm bench serve` is one.

    Args:
        work: what to ask.
        base_url: of the server.
        model: its name.
        prefix: of the files that are written: what is asked, the result and the output.

    Raises:
        ClientError: it failed.
    """
    asked, result, log = (prefix.with_suffix(suffix) for suffix in (".asked.json", ".json", ".log"))
    asked.write_text(json.dumps({"work": dataclasses.asdict(work), "base_url": base_url, "model": model}))
    command = [sys.executable, "-m", __name__, str(asked), str(result)]
    return measured_by("our client", command, result, log, lambda found: Tpot(**found))


def ask_all(work: Workload, base_url: str, model: str) -> Tpot:
    """Makes the requests in this process, and measures them.

    Args:
        work: what to ask.
        base_url: of the server.
        model: its name.
    """
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for prompt in work.prompts:
        waiting.put(prompt)
    found: list[Measures] = []

    def ask_on() -> None:
        client = StreamingClient(base_url)
        body = {"model": model, "max_tokens": work.num_tokens, "temperature": 0, "ignore_eos": True}
        while True:
            try:
                prompt = waiting.get_nowait()
            except queue.Empty:
                break
            found.append(measure(client.ask(COMPLETIONS, body | {"prompt": prompt})))
        client.close()

    # Daemons: an interrupted test does not wait for answers.
    threads = [threading.Thread(target=ask_on, daemon=True) for _ in range(work.concurrency)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    summary = summarise(found)
    median, mean = (summary.tpot.p50, summary.tpot.mean) if summary.tpot is not None else (float("nan"),) * 2
    failed = summary.requests - summary.succeeded
    return Tpot(median * 1000, mean * 1000, summary.succeeded, failed, summary.output_tokens)


def main(asked: Path, result: Path) -> None:
    """What the process does.

    Args:
        asked: file from `run_ours`.
        result: file to write.
    """
    job = json.loads(asked.read_text())
    work = Workload(tuple(job["work"]["prompts"]), job["work"]["num_tokens"], job["work"]["concurrency"])
    found = ask_all(work, job["base_url"], job["model"])
    result.write_text(json.dumps(dataclasses.asdict(found)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
