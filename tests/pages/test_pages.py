"""Pages that people look at, opened in a browser; `make test-pages` writes their pictures to build/pages."""

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages.browser import IS_INSTALLED, Browser
from tests.unit.tools.bench.load.cases import results
from vllm_spec_tools.bench.load.report import report_of as bench_report
from vllm_spec_tools.report import write
from vllm_spec_tools.report.provenance import provenance

pytestmark = pytest.mark.skipif(not IS_INSTALLED, reason="needs apt-get install chromium chromium-driver")
ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"
PICTURES = ROOT / "build" / "pages"
WIDTHS = (1280, 500)
# Of the site: the first page, one with pictures and wide tables, one with a diagram, one made from docstrings.
SITE_PAGES = ("README", "docs/benchmarks", "docs/architecture", "docs/api", "docs/support")
_BROKEN_IMAGES = "return [...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src)"
_OVERFLOW = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    PICTURES.mkdir(parents=True, exist_ok=True)
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


def look_at(browser: Browser, url: str, name: str, width: int) -> None:
    """Opens a page, takes its picture, and checks that it is whole."""
    browser.errors()
    browser.open(url, width)
    assert browser.run(_BROKEN_IMAGES) == []
    assert browser.run(_OVERFLOW) <= 0
    browser.photograph(PICTURES / f"{name}-{width}.png")


@pytest.mark.parametrize("width", WIDTHS)
def test_a_report_is_whole(browser, tmp_path, width):
    report = bench_report(results(), provenance(["bench"], 0, (), {"target": "a"}), 3)
    path = tmp_path / "bench.html"
    write(report, html=path)
    look_at(browser, path.as_uri(), "bench", width)
    assert browser.errors() == []
    assert browser.run("return document.title") == report.title
    assert browser.run("return document.images.length") == 1
    shown = browser.run("return document.body.innerText")
    assert all(table.title in shown for table in report.tables)
    assert browser.run("return document.querySelectorAll('table').length") == len(report.tables)


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Serves the site; its address."""
    if not (SITE / "index.html").is_file():
        pytest.skip("needs the site: make docs")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Keeps quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SITE_PAGES)
def test_a_page_of_the_site_is_whole(browser, site, name, width):
    path = "" if name == "README" else f"{name}/"
    look_at(browser, f"{site}/{path}", f"site-{name.rpartition('/')[2]}", width)
    # Fonts and the diagrams' script are on the net, which is not reached here.
    own = [error for error in browser.errors() if site in error.split(" ")[0] and "https://" not in error]
    assert own == []
    assert browser.run("return document.querySelectorAll('.md-nav__link').length") > 20
