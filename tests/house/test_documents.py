"""Documents are part of the product: their links resolve, and versions agree."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import yaml
from contract_files import API

import jupyter_aliquot.gateway

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_documents_resolve(document: Path) -> None:
    targets = [t for t in LINK.findall(document.read_text()) if "://" not in t and not t.startswith("mailto:")]
    missing = [t for t in targets if not (document.parent / t).exists()]
    assert not missing


def test_every_document_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        document = waiting.pop()
        if document in reached or not document.exists():
            continue
        reached.add(document)
        targets = [t for t in LINK.findall(document.read_text()) if "://" not in t]
        waiting += [(document.parent / t).resolve() for t in targets if t.endswith(".md")]
    assert not {str(d.relative_to(ROOT)) for d in DOCUMENTS} - {str(d.relative_to(ROOT)) for d in reached}


def test_all_parts_have_one_version_and_the_gateway_no_copy_of_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    package = json.loads((ROOT / "package.json").read_text())
    assert {package["version"], API["info"]["version"], jupyter_aliquot.gateway.__version__} == {project["version"]}
    literals = re.compile(r"^__version__ = [\"']", re.MULTILINE)
    assert [str(p) for p in (ROOT / "gateway").rglob("*.py") if literals.search(p.read_text())] == []


def test_decisions_are_numbered_without_gap_or_repetition_and_say_their_number_everywhere() -> None:
    decisions = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
    numbers = [int(decision.name.partition("-")[0]) for decision in decisions]
    assert numbers == list(range(1, len(decisions) + 1)), "two bear one number, or one is left out"
    titles = [int(decision.read_text().removeprefix("# ").partition(".")[0]) for decision in decisions]
    assert titles == numbers
    index = (ROOT / "docs/decisions/README.md").read_text()
    listed = re.findall(r"^(\d+)\. \[.*\]\((\S+)\)$", index, re.MULTILINE)
    assert listed == [(str(number), decision.name) for number, decision in zip(numbers, decisions, strict=True)]


def test_decisions_have_their_four_parts() -> None:
    for decision in sorted((ROOT / "docs/decisions").glob("[0-9]*.md")):
        headings = set(re.findall(r"^## (.+)$", decision.read_text(), re.MULTILINE))
        assert headings >= {"Context", "Decision", "Consequences", "Alternatives"}, decision.name


INSTALLED_BY_NAME = re.compile(
    r"pip3? install\b[^`\n]*?[\s'\"]aliquot(?:\[[a-z,]*\])?(?=[\s`'\").,;:]|$)", re.MULTILINE
)


def test_no_text_installs_another_projects_package() -> None:
    """The index has another project's package under our name."""
    packages = [
        path
        for name in ("client", "demo", "gateway", "provisioner", "gpu_hook")
        for path in (ROOT / name).rglob("*.py")
    ]
    texts = [*DOCUMENTS, *packages, *(ROOT / "deploy").rglob("*"), *(ROOT / "labextension/src").rglob("*.ts*")]
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in texts
        if path.is_file()
        for match in INSTALLED_BY_NAME.finditer(path.read_text())
    ]
    assert not found


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("pip install aliquot", True),
        ("`pip install 'aliquot[hub,lab]'`.", True),
        ("sudo /opt/bin/pip install --upgrade aliquot", True),
        ("pip install '.[lab]' in a checkout", False),
        ("pip install --upgrade dist/jupyter_aliquot-*.whl", False),
    ],
)
def test_an_installation_by_name_is_recognised(text: str, want: bool) -> None:
    assert bool(INSTALLED_BY_NAME.search(text)) is want


PICTURE = re.compile(r'srcset="([^"]+)"><img alt="([^"]*)" src="([^"]+)"')


def pictures() -> list[tuple[str, str, Path, Path]]:
    """Return each picture that a page shows: the page, the text, the file, and the file for dark pages."""
    return [
        (str(page.relative_to(ROOT)), text, (page.parent / light).resolve(), (page.parent / dark).resolve())
        for page in DOCUMENTS
        for dark, text, light in PICTURE.findall(page.read_text())
    ]


def test_the_text_of_each_picture_says_what_is_seen() -> None:
    """A screen reader reads it in the picture's place: a caption of two words is none."""
    assert len(pictures()) > 20
    assert [(page, text) for page, text, _, _ in pictures() if len(text.split()) < 8] == []


def test_a_picture_has_one_text_on_all_pages_and_a_dark_twin_and_each_file_is_shown() -> None:
    texts: dict[Path, set[str]] = {}
    for _, text, light, dark in pictures():
        texts.setdefault(light, set()).add(text)
        assert dark == light.with_name(f"{light.stem}-dark{light.suffix}")
    assert {light.name: found for light, found in texts.items() if len(found) > 1} == {}
    shown = {file for light in texts for file in (light, light.with_name(f"{light.stem}-dark{light.suffix}"))}
    assert shown == set((ROOT / "docs/images").iterdir())


OWNERS_WORDS = {
    "REPOSITORY": r"git clone REPOSITORY\b",
    "OWNER/REPOSITORY": r"/OWNER/REPOSITORY/",
    "SECURITY-ADDRESS": r"\*\*SECURITY-ADDRESS\*\*",
}


def test_the_words_that_the_owner_replaces_are_listed_where_they_stand() -> None:
    """No page prints an address that is not known: a word in capitals stands in its place."""
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    pages = [*DOCUMENTS, ROOT / "binder/README.md"]
    for word, place in OWNERS_WORDS.items():
        (listed,) = re.findall(rf"^\| `{word}` \| (.*) \|$", contributing, re.MULTILINE)
        found = {str(page.relative_to(ROOT)) for page in pages if re.search(place, page.read_text())}
        assert found == set(re.findall(r"[A-Za-z/-]+\.md", listed.partition(";")[0])), word


def test_no_address_of_a_repository_is_made_up() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    package = json.loads((ROOT / "package.json").read_text())
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    known = [project.get("urls"), package.get("homepage"), package.get("repository"), citation.get("repository-code")]
    is_named = not re.search(r"git clone REPOSITORY ", (ROOT / "README.md").read_text())
    assert [value is not None for value in known] == [is_named] * 4, "all of them come with the repository's address"
