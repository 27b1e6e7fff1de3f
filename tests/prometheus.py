"""Debian's Prometheus with the configuration and rules of `deploy/`."""

import contextlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.dashboard import queries
from vllm_spec_tools.engines.serving import free_port

DEPLOY = Path(__file__).parents[1] / "deploy"
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="needs Prometheus: apt-get install prometheus",
)
_SECONDS = 30.0


class Prometheus:
    """A running Prometheus."""

    def __init__(self, url: str) -> None:
        self._url = url

    def get(self, path: str, **parameters: str) -> Any:
        """Returns the data of an answer of its API."""
        answer = httpx.get(f"{self._url}/api/v1/{path}", params=parameters, trust_env=False).json()
        assert answer["status"] == "success", (parameters, answer)
        return answer["data"]

    def wait_for(self, query: str) -> list[Any]:
        """Returns the first result of a query that is not empty."""
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end:
            if result := self.get("query", query=query)["result"]:
                return list(result)
            time.sleep(0.5)
        raise AssertionError(f"no result in {_SECONDS} s: {query}")

    def unanswered(self) -> set[str]:
        """Runs every query of the dashboard; returns the panels and variables without a result."""
        # Every value of every variable, as on the dashboard.
        asked = [(query.where, re.sub(r"\$(\w+)", ".*", query.promql)) for query in queries()]
        return {where for where, promql in asked if not self.get("query", query=promql)["result"]}

    def is_ready(self) -> bool:
        """Whether it answers queries."""
        try:
            return httpx.get(f"{self._url}/-/ready", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False


@contextlib.contextmanager
def scraping(folder: Path, targets: Sequence[str]) -> Iterator[Prometheus]:
    """Runs a Prometheus that scrapes servers, and has scraped each of them twice.

    Args:
        folder: for its configuration and data.
        targets: host and port of each server.
    """
    port = free_port()
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"}
    config["scrape_configs"][0]["static_configs"] = [{"targets": list(targets)}]
    config["rule_files"] = [str(DEPLOY / "prometheus" / "alerts.yml")]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        server = Prometheus(f"http://127.0.0.1:{port}")
        end = time.monotonic() + _SECONDS
        while not server.is_ready():
            assert process.poll() is None, (folder / "log").read_text()[-2000:]
            assert time.monotonic() < end
            time.sleep(0.2)
        # Increases are seen only after a first scrape, which begins seconds after the start.
        server.wait_for(f"count(count_over_time(up[1m]) > 1) == {len(targets)}")
        yield server
    finally:
        process.terminate()
        process.wait(10)
