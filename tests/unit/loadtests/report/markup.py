"""Reads a page as a browser does, but forgives nothing."""

from html.parser import HTMLParser

_VOID = {"meta", "link", "br", "hr", "img", "input"}
_LOADING = {"src", "srcset", "href", "xlink:href", "data", "poster", "action", "background"}


class Page(HTMLParser):
    """What a page consists of.

    Attributes:
        elements: names and attributes, in order.
        texts: what can be read, in order; no styles.
    """

    def __init__(self, text: str) -> None:
        """Reads it.

        Raises:
            AssertionError: an element is not closed, or another one is, or an id is there twice.
        """
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []
        ids = [attributes["id"] for _, attributes in self.elements if "id" in attributes]
        assert len(ids) == len(set(ids))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip() and "style" not in self._open:
            self.texts.append(data.strip())

    def names(self, tag: str) -> int:
        """How many elements have this name."""
        return sum(name == tag for name, _ in self.elements)

    @property
    def references(self) -> set[str]:
        """All that is to be loaded, or led to."""
        return {value for _, attributes in self.elements for name, value in attributes.items() if name in _LOADING}
