"""C files include only what lies below them: the folders have an order, and modules form no cycle."""

from __future__ import annotations

import itertools
import re
from functools import cache
from pathlib import Path

import pytest

GPU_HOOK = Path(__file__).resolve().parents[2] / "gpu_hook"
TREES = {"hook": "## The hook (C)", "softgpu": "## The software GPU (C)"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
# A folder that a README's line names before its colon; one line may name several.
FOLDER = re.compile(r"`(\w+)/`(?=[^:]*:)")


@cache
def folder_order(tree: str) -> list[str]:
    """Return the folders of *tree* from the lowest, as gpu_hook/README.md lists them."""
    section = (GPU_HOOK / "README.md").read_text().split(TREES[tree])[1].split("\n## ")[0]
    return [name for line in section.splitlines() if line.startswith("- ") for name in FOLDER.findall(line)]


@cache
def sources(tree: str) -> dict[str, Path]:
    """Return the C files of *tree* by name; a name is used once, so an include may leave out the folder."""
    paths = sorted(path for path in (GPU_HOOK / tree).rglob("*.[ch]"))
    named = {path.name: path for path in paths}
    assert len(named) == len(paths) > 50, "two files have one name"
    return named


@cache
def includes(tree: str) -> list[tuple[Path, Path]]:
    """Return each include of a file of *tree* by another: (including, included)."""
    files = sources(tree)
    return [
        (path, files[name])
        for path in files.values()
        for name in (Path(text).name for text in INCLUDE.findall(path.read_text()))
        if name in files
    ]


def module(path: Path, tree: str) -> str:
    """Return the name of the file's module: a C file with its header, and with the header of its inside.

    NAME_state.h, without a C file of its own, is what the C files that make up NAME share.
    """
    name = path.stem.removesuffix("_state")
    is_inside = f"{path.stem}.c" not in sources(tree) and f"{name}.c" in sources(tree)
    return name if is_inside else path.stem


def folder(path: Path, tree: str) -> str:
    """Return the name of the file's folder; a file at the top of the tree has none."""
    return str(path.parent.relative_to(GPU_HOOK / tree)).replace(".", "")


def cycles(tree: str) -> set[frozenset[str]]:
    """Return the sets of modules that reach each other by includes."""
    reached: dict[str, set[str]] = {module(path, tree): set() for path in sources(tree).values()}
    for including, included in includes(tree):
        reached[module(including, tree)].add(module(included, tree))
    for through, one in itertools.product(reached, reached):
        if through in reached[one]:
            reached[one] |= reached[through]
    return {
        frozenset(other for other in reached[one] if one in reached[other]) for one in reached if one in reached[one]
    } - {frozenset([one]) for one in reached}


@pytest.mark.parametrize("tree", TREES)
def test_the_readme_names_every_folder_of_c_files_once(tree: str) -> None:
    folders = {folder(path, tree) for path in sources(tree).values()} - {""}
    assert sorted(folder_order(tree)) == sorted(folders)


@pytest.mark.parametrize("tree", TREES)
def test_a_folder_includes_only_folders_that_the_readme_names_before_it(tree: str) -> None:
    order = [*folder_order(tree), ""]
    against = [
        (including, included)
        for including, included in includes(tree)
        if order.index(folder(including, tree)) < order.index(folder(included, tree))
    ]
    assert not against, "\n".join(f"{one.relative_to(GPU_HOOK)} includes {other.name}" for one, other in against)


@pytest.mark.parametrize("tree", TREES)
def test_modules_form_no_cycle_of_includes(tree: str) -> None:
    assert not cycles(tree), [" ".join(sorted(modules)) for modules in cycles(tree)]
