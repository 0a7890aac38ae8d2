"""Build the documentation as a site: ``make docs`` writes it to ``build/site``.

The pages below ``docs/`` are written for a reader of the repository. This program copies them, with
the pages of the top folder, into a folder of sources where each link stays within the site, makes a
page of each section of ``docs/README.md``, and runs Sphinx with warnings as errors.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import api_page

ROOT = Path(__file__).resolve().parents[1]
TOP_PAGES = ("SECURITY.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md")
INDEX = "docs/README.md"
CONTRACT = ROOT / "gateway/api/openapi.yaml"
EVENT = ROOT / "gateway/events/kernel_event.yaml"
# The page that the site makes of the contract.
OPERATIONS = "reference/operations.md"
SETTINGS = """
project = "Aliquot"
extensions = ["myst_parser"]
myst_heading_anchors = 4
html_theme = "pydata_sphinx_theme"
version = release = {release!r}
html_title = f"Aliquot {release}"
html_show_copyright = False
html_extra_path = ["extra"]
exclude_patterns = ["extra"]
html_show_sourcelink = False
html_theme_options = {theme!r}
linkcheck_ignore = [r"https?://(localhost|127\\.0\\.0\\.1|[a-z.-]*example\\.org)"]
"""
THEME = {"show_prev_next": False, "header_links_before_dropdown": 6}
# The words of requests for a host that has no name here, or does not answer.
_NOT_REACHED = re.compile(r"NameResolutionError|NewConnectionError|ConnectTimeout|ProxyError")
_VERSION = re.compile(r'^version = "([^"]+)"$', re.MULTILINE)
_LINK = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\])\(([^)#\s]*)(#[^)\s]*)?\)")
_IMAGE = re.compile(r'(src(?:set)?=")([^"]+)(")')
_FENCE = re.compile(r"^( *)```", re.MULTILINE)
_ALL_OF_ITS_FOLDER = "\n```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


def name_in_site(page: Path) -> str | None:
    """Return where a file of the repository lies in the site's sources; None: it is no part of the site."""
    name = page.relative_to(ROOT).as_posix()
    if name == INDEX:
        return "index.md"
    if name in TOP_PAGES:
        return f"about/{page.name.lower()}"
    if name == "README.md":
        return "index.md"
    return name.removeprefix("docs/") if name.startswith("docs/") and page.is_file() else None


def _in_site(page: Path, target: str) -> str | None:
    """Return a link from *page* as the site has it; None: what it names is not in the site.

    Raises FileNotFoundError if the repository has no such file.
    """
    file = (page.parent / target).resolve()
    if not file.exists():
        raise FileNotFoundError(f"{page.relative_to(ROOT)} links to {target}, which does not exist")
    if file == CONTRACT:
        there: str | None = OPERATIONS
    else:
        there = name_in_site(file / "README.md" if file.is_dir() else file)
    here = name_in_site(page)
    assert here is not None, page
    return None if there is None else os.path.relpath(there, Path(here).parent)


def _rewritten(page: Path, text: str) -> str:
    def link(match: re.Match[str]) -> str:
        label, target, anchor = match[1], match[2], match[3] or ""
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        there = _in_site(page, target)
        return label[1:-1] if there is None else f"{label}({there}{anchor})"

    def image(match: re.Match[str]) -> str:
        here = name_in_site(page)
        assert here is not None, page
        return f"{match[1]}{_in_site(page, match[2])}{match[3]}"

    return _IMAGE.sub(image, _LINK.sub(link, text))


def rewrite(page: Path, text: str) -> str:
    """Return the page's text for the site: links stay within it; blocks of code are left as they are."""
    parts: list[str] = []
    prose: list[str] = []  # a link may go over the end of a line
    is_code = False
    for line in text.splitlines(keepends=True):
        is_fence = _FENCE.match(line) is not None
        if is_fence or is_code:
            parts += [_rewritten(page, "".join(prose)), line]
            prose = []
        else:
            prose.append(line)
        is_code = is_code != is_fence
    return "".join([*parts, _rewritten(page, "".join(prose))])


def sections(index: str) -> dict[str, str]:
    """Return a page for each section of the index, by file name: its text, and a tree of what it links to.

    The theme shows the pages of one section in the side bar, and the sections in the head.
    """
    pages: dict[str, str] = {}
    seen: set[str] = set()
    parts = _SECTION.split(index)[1:]
    for caption, text in zip(parts[::2], parts[1::2], strict=True):
        linked = [m[2] for m in _LINK.finditer(text) if m[2].endswith(".md")]
        own = [page for page in dict.fromkeys(linked) if page not in seen]
        seen.update(own)
        entries = "\n".join(page.removesuffix(".md") for page in own)
        name = caption.lower().replace(" ", "-") + ".md"
        pages[name] = f"# {caption}\n{text}\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"
    return pages


def settings(versions: str = "") -> str:
    """Return Sphinx's settings for the version of `pyproject.toml`.

    Args:
        versions: the address of a list of versions, in the form of the theme's `switcher.json`. Each page
            then has a menu of them. Empty: the title alone tells the version.
    """
    found = _VERSION.search((ROOT / "pyproject.toml").read_text())
    assert found is not None
    theme: dict[str, object] = dict(THEME)
    if versions:
        theme |= {"switcher": {"json_url": versions, "version_match": found[1]}, "check_switcher": False}
        theme["navbar_end"] = ["version-switcher", "theme-switcher", "navbar-icon-links"]
    return SETTINGS.replace("{release!r}", repr(found[1])).replace("{theme!r}", repr(theme))


def stage(sources: Path, versions: str = "") -> None:
    """Copy all pages and pictures into *sources*, an empty folder."""
    pages = [*sorted((ROOT / "docs").rglob("*.md")), *(ROOT / name for name in TOP_PAGES)]
    for page in pages:
        name = name_in_site(page)
        assert name is not None, page
        text = rewrite(page, page.read_text())
        if name == "index.md":
            parts = sections(text)
            for part, contents in parts.items():
                (sources / part).write_text(contents)
            entries = "\n".join(part.removesuffix(".md") for part in parts)
            text += f"\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"
        elif page.name == "README.md":
            text += _ALL_OF_ITS_FOLDER
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        (sources / name).write_text(text)
    for picture in sorted((ROOT / "docs").rglob("*")):
        if picture.suffix in (".png", ".svg", ".json"):
            # Sphinx copies what Markdown shows, and leaves what HTML tags name.
            for folder in (sources, sources / "extra"):
                there = folder / picture.relative_to(ROOT / "docs")
                there.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(picture, there)
    (sources / OPERATIONS).write_text(api_page.render(CONTRACT, EVENT))
    for folder in (sources, sources / "extra"):
        shutil.copyfile(CONTRACT, folder / "openapi.yaml")
    (sources / "conf.py").write_text(settings(versions))


def build(out: Path, builder: str = "html", versions: str = "") -> int:
    """Build the site into *out*, with Sphinx's *builder*; return Sphinx's exit status."""
    with tempfile.TemporaryDirectory() as folder:
        sources = Path(folder, "docs")
        sources.mkdir()
        stage(sources, versions)
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", builder, "-d", f"{folder}/trees"]
        return subprocess.run([*command, str(sources), str(out)], check=False).returncode


def reaches_none(found: str) -> int:
    """Return how many addresses outside were asked, if none of them was reached; else 0.

    Args:
        found: what Sphinx's link check writes to ``output.json``: an object a line.
    """
    asked = [row for row in map(json.loads, found.splitlines()) if row["status"] not in ("ignored", "unchecked")]
    is_cut_off = all(row["status"] == "broken" and _NOT_REACHED.search(row["info"]) for row in asked)
    return len(asked) if is_cut_off else 0


def check_links(out: Path) -> int:
    """Ask each address outside of the site; return 1 if one is broken, or this machine reaches none of them."""
    status = build(out, "linkcheck")
    if status and (count := reaches_none((out / "output.json").read_text())):
        print(
            f"Requested to ask {count} addresses outside of the site, but this machine reaches none of them. "
            "Check the links on a machine with a network; those within the site are whole",
            file=sys.stderr,
        )
    return status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build/site", help="where to write (default build/site)")
    parser.add_argument("--check-links", action="store_true", help="ask each address outside of the site, too")
    parser.add_argument("--versions", default="", help="address of the switcher.json of a host with several versions")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.out, ignore_errors=True)
    status = build(arguments.out, versions=arguments.versions)
    if status == 0 and arguments.check_links:
        status = check_links(arguments.out / "links")
    if status == 0:
        print(f"the site is built: {arguments.out / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
