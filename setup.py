"""Adds to pyproject.toml the links for a package page, where the README's relative ones lead nowhere.

PROJECT_URL is the repository's address, such as https://github.com/OWNER/NAME. Without it links become plain text.
"""

import os
import re
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
URL = os.environ.get("PROJECT_URL", "").rstrip("/")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)\s]+)\)")


def package_page(text: str, url: str) -> str:
    """Returns a page of the repository with absolute links; without an address, with the links' texts alone."""

    def replaced(link: re.Match[str]) -> str:
        is_image, words, path = link.groups()
        if not url:
            return "" if is_image else words
        return f"{is_image}[{words}]({url}/{'raw' if is_image else 'blob'}/HEAD/{path})"

    return _LINK.sub(replaced, text)


if __name__ == "__main__":
    setup(
        long_description=package_page((ROOT / "README.md").read_text(encoding="utf-8"), URL),
        long_description_content_type="text/markdown",
        project_urls={
            "Repository": URL,
            "Documentation": f"{URL}/tree/HEAD/docs",
            "Changelog": f"{URL}/blob/HEAD/CHANGELOG.md",
            "Issues": f"{URL}/issues",
        }
        if URL
        else {},
    )
