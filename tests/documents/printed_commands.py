"""The commands that pages print for a reader to type.

They stand in blocks marked `sh` or `console`, and in the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs/tutorial").glob("*.md")),
    *sorted((ROOT / "docs/how-to").glob("*.md")),
)
_IN_TEXT = frozenset(
    ("make", "aliquot", "jupyter", "papermill", "jlpm", "pip", "docker", "podman", "cmake", "systemctl", "sudo", "curl")
) | {"git", "python", "python3", "pytest"}
PROGRAMS = _IN_TEXT | {"install", "echo", "cd", "export", "rm", "for"}
LANGUAGES = frozenset({"sh", "console", "python", "ini", "text", "yaml"})
_FENCE = re.compile(r"^ *```(\w*) *$")
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_COMMENT = re.compile(r"(?:^|\s{2,})#\s.*$")


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str


def blocks_and_text(page: str, text: str) -> tuple[list[Block], str]:
    """Return the fenced blocks, and the text outside of them."""
    blocks: list[Block] = []
    outside: list[str] = []
    inside: list[str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if match := _FENCE.match(line):
            if inside is None:
                inside = []
                blocks.append(Block(page, number, match[1], ""))
            else:
                last = blocks[-1]
                blocks[-1] = Block(last.page, last.line, last.language, "\n".join(inside))
                inside = None
        else:
            (outside if inside is None else inside).append(line)
    assert inside is None, f"{page}:{blocks[-1].line}: a block has no end"
    return blocks, "\n".join(outside)


def is_command(line: str) -> bool:
    word = line.split(" ")[0]
    return word in PROGRAMS or word.startswith(".venv/bin/") or bool(re.match(r"[A-Z][A-Z_]+=\S* ", line))


def commands_of_block(block: Block) -> list[str]:
    """Return the block's commands without comments; continued lines and loops are one command each."""
    if block.language == "console":
        return [line[2:] for line in block.text.splitlines() if line.startswith("$ ")]
    commands: list[str] = []
    whole = ""
    for line in block.text.splitlines():
        whole = f"{whole}\n{line}" if whole else line
        if not line.strip() or line.endswith("\\") or (whole.startswith("for ") and line != "done"):
            continue
        if command := _COMMENT.sub("", whole).strip():
            commands.append(command)
        whole = ""
    assert not whole, f"{block.page}:{block.line}: {whole!r} is no whole command"
    return commands


def commands_of_page(page: str, text: str) -> list[str]:
    blocks, outside = blocks_and_text(page, text)
    found = [command for block in blocks if block.language in ("sh", "console") for command in commands_of_block(block)]
    for code in _INLINE.findall(outside):
        word, _, more = code.partition(" ")
        if more and (word in _IN_TEXT or word.startswith(".venv/bin/")):
            found.append(code)
    return found


def exports_before(page: str, command: str) -> list[str]:
    """Return the exports of a page's block before it prints this command.

    There are none for a command in the text.
    """
    blocks, _ = blocks_and_text(page, (ROOT / page).read_text())
    for block in blocks:
        commands = commands_of_block(block) if block.language in ("sh", "console") else []
        if command in commands:
            return [line for line in commands[: commands.index(command)] if line.startswith("export ")]
    return []


def printed() -> dict[str, list[str]]:
    """Return the pages of each command."""
    pages: dict[str, list[str]] = {}
    for path in PAGES:
        name = path.relative_to(ROOT).as_posix()
        for command in commands_of_page(name, path.read_text()):
            pages.setdefault(command, []).append(name)
    return pages
