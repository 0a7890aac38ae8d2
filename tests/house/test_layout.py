"""A folder has one subject and few files; its README says which, in the order that imports go."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
MOST_FILES = 15
ENTRY = re.compile(r"^- `(?P<name>[\w.]+?)(?:/|\.py)?`: \S", re.MULTILINE)


def source_files() -> list[Path]:
    listed = subprocess.run(
        [
            "git",
            "ls-files",
            "-co",
            "--exclude-standard",
            "client",
            "demo",
            "gateway",
            "provisioner",
            "gpu_hook",
            "labextension/src",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [Path(line) for line in listed.stdout.splitlines()]
    return [
        path
        for path in paths
        if path.suffix in (".py", ".c", ".ts", ".tsx") and path.name != "__init__.py" and (ROOT / path).is_file()
    ]


def test_every_folder_has_few_source_files() -> None:
    counts = Counter(str(path.parent) for path in source_files())
    assert {"gateway/kernels", "provisioner/engine", "gpu_hook/hook/memory", "labextension/src/model"} <= set(counts)
    assert {folder: count for folder, count in counts.items() if count > MOST_FILES} == {}


def test_no_file_keeps_a_conflict_of_a_rebase() -> None:
    """Nothing compiles the scripts of some tests before the suite runs them."""
    found = subprocess.run(["git", "grep", "-lE", "^(<{7}|>{7}) "], cwd=ROOT, capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr) == (1, "", "")


def layers(container: str) -> list[set[str]]:
    """Return the layers of the contract for this package, from the top, each with its modules."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    contract = next(one for one in settings["contracts"] if one.get("containers") == [container])
    return [set(re.split(r"\s*[|:]\s*", layer)) for layer in contract["layers"]]


@pytest.mark.parametrize(
    ("package", "readme", "section"),
    [("gateway", "gateway", 0), ("provisioner", "provisioner", 0), ("provisioner.relay", "provisioner", 1)],
)
def test_a_readme_names_every_part_in_the_order_of_the_imports(package: str, readme: str, section: int) -> None:
    named = ENTRY.findall((ROOT / readme / "README.md").read_text().split("\n## ")[section])
    for layer in layers(f"jupyter_aliquot.{package}"):
        assert set(named[: len(layer)]) == layer
        named = named[len(layer) :]
    assert named == []
