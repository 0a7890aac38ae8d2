"""The Hub's spawn page: of all that a user typed it repeats a size alone, and all of it as text."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from jupyter_aliquot.gateway.hub import HubSettings
from jupyter_aliquot.gateway.hub.options_form import read_form, size_form
from jupyter_aliquot.gateway.hub.size_choice import SizeChoiceError
from jupyter_aliquot.provisioner.errors import SizeNameError

MARKUP = "\"'><img src=x onerror=alert(1)><script>alert(2)</script>"


class Elements(HTMLParser):
    """A parser that collects the elements and attributes that a browser would find."""

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
    hostile = elements(size_form(("none", "0.25"), "0.5", MARKUP, has_custom=True))
    assert hostile.found == plain.found
    assert hostile.attributes == plain.attributes


def test_markup_in_a_field_is_no_size_and_is_not_on_the_next_page() -> None:
    choice = HubSettings().choice()
    with pytest.raises(SizeChoiceError):
        choice.check(read_form({"gpu": ["0.25"], "gpu-custom": [MARKUP]}), "alice", [])
    with pytest.raises(SizeNameError):
        size_form(("none", "0.25"), MARKUP, "2", has_custom=True)
