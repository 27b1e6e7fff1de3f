"""The load tests' own client in a closed loop of threads."""

import queue
import threading

from loadtests.acceptance.compare.figures import Tpot
from loadtests.acceptance.compare.workload import Workload
from loadtests.stream.client import COMPLETIONS, StreamingClient
from loadtests.stream.summary import summarise
from loadtests.stream.timing import Measures, measure


def run_ours(work: Workload, base_url: str, model: str) -> Tpot:
    """Makes the requests, and measures them.

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
