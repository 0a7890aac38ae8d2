"""The documentation site builds without a warning, and each of its links leads to a page and a place."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import docs_site  # noqa: E402

pytestmark = pytest.mark.timeout(600)  # a busy machine takes minutes for the build


class _Page(HTMLParser):
    """The places of one page, and what it links to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.places.add(value)
            elif name in ("href", "src") and tag in ("a", "img", "link", "script"):
                self.links.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    assert docs_site.build(out) == 0, "Sphinx warned: its lines stand above"
    return out


def test_each_link_of_the_site_leads_to_a_page_and_a_place(site: Path) -> None:
    pages = {path: _Page(path.read_text()) for path in site.rglob("*.html") if "_static" not in path.parts}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlparse(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = unquote(parts.fragment)
            is_known = target.exists() and (not place or target not in pages or place in pages[target].places)
            if not is_known:
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_the_site_has_all_pages_and_a_search(site: Path) -> None:
    written = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    built = {page.relative_to(site) for page in site.rglob("*.html")}
    assert written - built - {Path("README.html")} == set()
    assert {Path("index.html"), Path("about/security.html"), Path("run-it-for-others.html")} <= built
    assert (site / "searchindex.js").exists()
    assert (site / "openapi.yaml").read_text().startswith("openapi:")


def test_the_site_says_its_version_and_offers_others_where_it_is_told_of_them(site: Path) -> None:
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert f"<title>Aliquot &#8212; Aliquot {version[1]}</title>" in (site / "index.html").read_text()
    assert "version-switcher" not in (site / "index.html").read_text()
    told = "https://docs.example.org/aliquot/switcher.json"
    settings: dict[str, dict[str, object]] = {}
    exec(docs_site.settings(told), settings)
    assert settings["html_theme_options"]["switcher"] == {"json_url": told, "version_match": version[1]}


def test_the_contract_is_a_page_with_each_operation_and_each_schema(site: Path) -> None:
    contract = yaml.safe_load(docs_site.CONTRACT.read_text())
    places = _Page((site / "reference/operations.html").read_text()).places
    want = {one["operationId"] for methods in contract["paths"].values() for one in methods.values()}
    want |= {*contract["components"]["schemas"], "KernelEvent"}
    assert {name.lower() for name in want} - places == set()
    assert "operations.html" in (site / "reference/rest-api.html").read_text()


def test_links_stay_in_the_site_and_files_outside_of_it_are_named_without_one() -> None:
    page = ROOT / "docs/how-to/limits.md"
    text = "[a](../../SECURITY.md#report), [b](../../gateway/sizes), [c](culling.md), [d](https://x.org/y.md)\n"
    text += "[over\ntwo lines](../../CHANGELOG.md)\n"
    wanted = "[a](../about/security.md#report), b, [c](culling.md), [d](https://x.org/y.md)\n"
    wanted += "[over\ntwo lines](../about/changelog.md)\n"
    assert docs_site.rewrite(page, text) == wanted


def test_what_a_block_of_code_shows_is_left_as_it_is() -> None:
    text = "```sh\necho '[a](../../gateway/sizes)'\n```\n"
    assert docs_site.rewrite(ROOT / "docs/how-to/limits.md", text) == text


def test_a_link_to_a_file_that_does_not_exist_is_an_error_that_names_both() -> None:
    with pytest.raises(FileNotFoundError, match=re.escape("docs/glossary.md links to no-such-page.md")):
        docs_site.rewrite(ROOT / "docs/glossary.md", "[x](no-such-page.md)\n")


def test_a_machine_that_reaches_no_address_is_told_from_one_that_finds_broken_ones() -> None:
    away = {"status": "broken", "info": "Max retries exceeded (Caused by NameResolutionError('x.org'))"}
    gone = {"status": "broken", "info": "404 Client Error: Not Found for url: https://x.org/a"}
    local = {"status": "ignored", "info": ""}

    def found(*rows: dict[str, str]) -> str:
        return "".join(f"{json.dumps(row)}\n" for row in rows)

    assert docs_site.reaches_none(found(away, away, local)) == 2
    assert docs_site.reaches_none(found(away, gone)) == 0
    assert docs_site.reaches_none(found(away, {"status": "working", "info": ""})) == 0
    assert docs_site.reaches_none(found(local)) == 0


def test_each_page_is_in_the_section_that_names_it_first() -> None:
    pages = docs_site.sections("# T\n\n## Use it\n- [a](a.md) and [b](b.md)\n## Look up\n- [b](b.md), [c](c.md)\n")
    assert list(pages) == ["use-it.md", "look-up.md"]
    assert re.findall(r"^[abc]$", pages["look-up.md"], re.MULTILINE) == ["c"]
