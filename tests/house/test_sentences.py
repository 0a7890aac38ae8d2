"""Docstrings and comments name an actor and begin with a verb or a noun (CONTRIBUTING.md, "How we write")."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from python_sources import PythonSource, parsed, python_source

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("client", "gateway", "provisioner", "gpu_hook", "demo", "labextension/src", "tools", "benchmarks", "tests")
# A subject clause or a pronoun leaves the reader to guess the subject.
RIDDLE = re.compile(r"(Who|Whoever|Whose|Whom|What|Where|Which|That|Those who|They|He|She|It|His|Their)\b")
VAGUE = re.compile(r"\b(nobody|somebody|whoever|no one|someone|anybody)\b", re.IGNORECASE)
# A message says "Requested …, but …", or what is not valid: no form of "asked …; found …; wanted …".
ASKED = re.compile(r"asked\b|.*[;:] (found|wanted)\b|.*, found\b|found (no|\{)", re.IGNORECASE | re.DOTALL)
MESSAGE_FOLDERS = ("client", "gateway", "provisioner", "gpu_hook", "demo", "tools", "benchmarks")
C_COMMENT = re.compile(r"/\*+\s*(\w[^*]*)")
# They name the words that others may not have.
WITH_THE_WORDS = ("test_sentences.py", "test_sentences_of_documents.py")
# Folders with riddles left, and vague actors left (in tests' names and printed texts). Each number may only shrink.
LEFT: dict[str, tuple[int, int]] = {
    "gpu_hook/hook": (0, 2),
    "labextension": (6, 0),
    "tests": (0, 1),
    "tests/gateway": (0, 113),
    "tests/gpu_hook": (0, 11),
    "tests/hub": (0, 2),
    "tests/labextension": (0, 3),
    "tests/provisioner": (0, 2),
    "tests/system": (0, 5),
}


def sources() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [Path(line) for line in listed.stdout.splitlines()]
    return [
        path for path in paths if path.suffix in (".py", ".c", ".h", ".ts", ".tsx") and path.name not in WITH_THE_WORDS
    ]


def first_words(path: Path, text: str) -> Sequence[str]:
    """Return the docstrings of a Python file, or the block comments of a C or TypeScript file."""
    if path.suffix != ".py":
        return [found[1] for found in C_COMMENT.finditer(text)]
    return python_source(ROOT / path).docstrings


def messages(source: PythonSource) -> list[str]:
    """Return the texts that errors of a Python file are raised with, directly or by a helper."""
    whole = {
        node for each in source.answers for node in ast.walk(each) if isinstance(node, ast.JoinedStr | ast.Constant)
    }
    parts = {part for node in whole if isinstance(node, ast.JoinedStr) for part in ast.walk(node) if part is not node}
    return [words for node in whole - parts if (words := words_of(node)) is not None]


def words_of(node: ast.JoinedStr | ast.Constant) -> str | None:
    """Return a text's words, with ``{}`` for each value that is put in; None for a number."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)


def folder_of(path: Path) -> str:
    """Return the folder by which counts are kept: ``gateway/status``, ``tools``."""
    deep = path.parts[0] in ("gateway", "provisioner", "gpu_hook", "tests") and len(path.parts) > 2
    return "/".join(path.parts[: 2 if deep else 1])


@pytest.fixture(scope="module")
def counts() -> dict[str, tuple[int, int]]:
    riddles: Counter[str] = Counter()
    vague: Counter[str] = Counter()
    for path in sources():
        text = (ROOT / path).read_text()
        riddles[folder_of(path)] += sum(RIDDLE.match(words) is not None for words in first_words(path, text))
        vague[folder_of(path)] += len(VAGUE.findall(text))
    found = {folder: (riddles[folder], vague[folder]) for folder in {*riddles, *vague}}
    return {folder: both for folder, both in found.items() if any(both)}


def test_no_docstring_begins_with_a_riddle(counts: dict[str, tuple[int, int]]) -> None:
    left = {folder: riddles for folder, (riddles, _) in counts.items() if riddles > LEFT.get(folder, (0, 0))[0]}
    assert left == {}, "begin with a verb or a noun; CONTRIBUTING.md has examples"


def test_no_text_has_a_vague_actor(counts: dict[str, tuple[int, int]]) -> None:
    left = {folder: vague for folder, (_, vague) in counts.items() if vague > LEFT.get(folder, (0, 0))[1]}
    assert left == {}, "name the actor: the gateway, the agent, the hook, the driver, the user"


def test_the_list_only_shrinks(counts: dict[str, tuple[int, int]]) -> None:
    assert {folder: counts.get(folder, (0, 0)) for folder in LEFT} == LEFT, "lower the numbers of LEFT"


def test_no_message_is_a_list_of_what_was_asked_and_found() -> None:
    paths = [path for path in sources() if path.suffix == ".py" and path.parts[0] in MESSAGE_FOLDERS]
    found = {
        str(path): [words for words in messages(python_source(ROOT / path)) if ASKED.match(words)] for path in paths
    }
    assert {path: words for path, words in found.items() if words} == {}, (
        "say what was requested, what limits it, and what to do: Requested 2 GPUs, but this server has 1. …"
    )


def test_what_counts_as_a_message_of_what_was_asked_and_found() -> None:
    program = (
        'raise LimitError(f"asked {gpus} GPUs; found {free}; wanted less")\nraise Other(code, "Requested 2 GPUs, but")'
    )
    new, old = sorted(messages(parsed(program)))
    assert ASKED.match(old)
    assert not ASKED.match(new)
    assert ASKED.match("c.Limits: asked 5; wanted 6")
    assert ASKED.match("found no folder")
    assert not ASKED.match("the request that was asked for is found")


def test_what_counts_as_a_riddle() -> None:
    assert RIDDLE.match("Whose kernel it is")
    assert not RIDDLE.match("Whether the kernel runs")
    assert VAGUE.search("Nobody may")
    assert folder_of(Path("gateway/status/report.py")) == "gateway/status"
    assert folder_of(Path("tools/setup.py")) == "tools"
