"""C files include only what lies below them: the folders have an order, and modules form no cycle."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

GPU_HOOK = Path(__file__).resolve().parents[2] / "gpu_hook"
TREES = {"hook": "## The hook (C)", "softgpu": "## The software GPU (C)"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
# A folder that a README's line names before its colon; one line may name several.
FOLDER = re.compile(r"`(\w+)/`(?=[^:]*:)")

# Includes against the order of the folders, by the two folders. Each number may only shrink.
AGAINST_THE_ORDER: dict[str, dict[str, int]] = {
    "hook": {},
    "softgpu": {
        "arrays -> capture": 1,
        "arrays -> copies": 2,
        "arrays -> queue": 2,
        "copies -> capture": 1,
        "driver -> arrays": 2,
        "driver -> capture": 1,
        "driver -> graph_memory": 1,
        "driver -> launch": 2,
        "driver -> managed": 1,
        "driver -> memory": 7,
        "driver -> modules": 1,
        "driver -> pools": 3,
        "driver -> queue": 4,
        "graphs -> capture": 1,
        "graphs -> graph_memory": 3,
        "graphs -> modules": 2,
        "launch -> capture": 1,
        "launch -> modules": 4,
        "managed -> capture": 1,
        "managed -> queue": 1,
        "memory -> capture": 3,
        "memory -> graph_memory": 1,
        "memory -> managed": 4,
        "memory -> pools": 3,
        "memory -> queue": 5,
        "pools -> capture": 1,
        "pools -> graph_memory": 1,
        "pools -> queue": 1,
        "queue -> capture": 3,
        "queue -> modules": 1,
    },
}
# Modules (file stems) that include each other in a cycle, and why. It may only shrink.
KNOWN_CYCLES: dict[str, dict[str, str]] = {
    "hook": {},
    "softgpu": {
        "enter strict": "to be cut",
        "limits slots": "to be cut",
        "cgroups machine requests settings": "to be cut",
        (
            "arrays builtins capture capture_state checkpoint contexts copies driver event_shares events "
            "graph_memory graph_memory_state graph_state host_memory ipc managed mappings modules modules_state "
            "physical pool_state pools resources shares stream_state streams textures window window_state works"
        ): "to be cut",
    },
}


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


def folder(path: Path, tree: str) -> str:
    """Return the name of the file's folder; a file at the top of the tree has none."""
    return str(path.parent.relative_to(GPU_HOOK / tree)).replace(".", "")


def cycles(tree: str) -> set[frozenset[str]]:
    """Return the sets of modules (file stems) that reach each other by includes."""
    reached: dict[str, set[str]] = {path.stem: set() for path in sources(tree).values()}
    for including, included in includes(tree):
        reached[including.stem].add(included.stem)
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
    counts = Counter(f"{folder(including, tree)} -> {folder(included, tree)}" for including, included in against)
    told = "\n".join(f"{one.relative_to(GPU_HOOK)} includes {other.name}" for one, other in against)
    assert dict(counts) == AGAINST_THE_ORDER[tree], told


@pytest.mark.parametrize("tree", TREES)
def test_modules_form_no_cycle_of_includes_that_is_not_known(tree: str) -> None:
    assert {" ".join(sorted(modules)) for modules in cycles(tree)} == set(KNOWN_CYCLES[tree])
