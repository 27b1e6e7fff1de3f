"""A headless Chromium, driven over the WebDriver protocol; needs Debian's chromium and chromium-driver."""

import base64
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from vllm_spec_tools.engines.serving import free_port

IS_INSTALLED = shutil.which("chromium") is not None and shutil.which("chromedriver") is not None
_SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    # Addresses on the net are answered at once: none.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
_START_SECONDS = 30.0


class Browser:
    """A browser with an empty profile, as a context manager."""

    def __init__(self, profile: Path) -> None:
        """Prepares a browser.

        Args:
            profile: an empty folder.
        """
        port = free_port()
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60.0)
        self._driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._profile = profile
        self._session = ""

    def __enter__(self) -> Self:
        end = time.monotonic() + _START_SECONDS
        while True:
            try:
                self._client.get("/status")
                break
            except httpx.TransportError:
                assert time.monotonic() < end, "chromedriver does not answer"
                time.sleep(0.1)
        options = {"binary": shutil.which("chromium"), "args": [*_SWITCHES, f"--user-data-dir={self._profile}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self._session = f"/session/{self._post('/session', {'capabilities': {'alwaysMatch': wanted}})['sessionId']}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._session:
            self._client.delete(self._session)
        self._driver.terminate()
        self._driver.wait(10)
        self._client.close()

    def open(self, url: str, width: int, height: int = 900) -> None:
        """Loads a page in a window of that size, in pixels."""
        self._post(f"{self._session}/window/rect", {"width": width, "height": height})
        self._post(f"{self._session}/url", {"url": url})

    def run(self, script: str) -> Any:
        """Returns what a function body in JavaScript returns on the page."""
        return self._post(f"{self._session}/execute/sync", {"script": script, "args": []})

    def errors(self) -> list[str]:
        """Returns what the page complained of since the last call."""
        entries = self._post(f"{self._session}/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    def photograph(self, path: Path, height: int = 4000) -> None:
        """Writes the whole page, up to a height, as a PNG."""
        size = self.run("return [window.outerWidth, document.documentElement.scrollHeight]")
        self._post(f"{self._session}/window/rect", {"width": size[0], "height": min(size[1] + 20, height)})
        answer = self._client.get(f"{self._session}/screenshot").raise_for_status()
        path.write_bytes(base64.b64decode(answer.json()["value"]))

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        answer = self._client.post(path, json=body)
        assert answer.is_success, answer.text[:500]
        return answer.json()["value"]
