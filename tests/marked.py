"""Pages that are written by hand, but for parts that come from results."""

import re
from collections.abc import Iterable, Mapping


def fill(page: str, parts: Mapping[str, Iterable[str]]) -> str:
    """Puts lines between each part's marks, `<!-- NAME -->` and `<!-- end of NAME -->`.

    Raises:
        ValueError: a part has no marks in the page.
    """
    for name, lines in parts.items():
        text = "\n".join(["", *lines, "", ""])
        marked = f"(?<=<!-- {name} -->\n).*(?=<!-- end of {name} -->)"
        page, found = re.subn(marked, lambda _, text=text: text, page, flags=re.DOTALL)  # type: ignore[misc]
        if found != 1:
            raise ValueError(f"{found} places with the marks of {name}")
    return page
