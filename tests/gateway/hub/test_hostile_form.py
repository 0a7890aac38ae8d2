"""The Hub's spawn page: what it repeats of what somebody typed is text."""

from __future__ import annotations

from html.parser import HTMLParser

from aliquot.gateway.hub.options_form import read_form, size_form

MARKUP = "\"'><img src=x onerror=alert(1)><script>alert(2)</script>"


class Elements(HTMLParser):
    """Which elements and handlers a browser would find."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.attributes |= {name for name, _ in attrs}


def elements(page: str) -> Elements:
    parser = Elements()
    parser.feed(page)
    return parser


def test_markup_on_the_spawn_page_is_text() -> None:
    plain = elements(size_form(("none", "0.25"), "0.5", "2", has_custom=True))
    hostile = elements(size_form(("none", "0.25"), MARKUP, MARKUP, has_custom=True))
    assert hostile.found == plain.found
    assert hostile.attributes <= plain.attributes | {"checked"}
    assert read_form({"gpu": ["custom"], "gpu-custom": [MARKUP]}) == MARKUP, "it is refused where it is read, as a size"
