"""Draw the pictures of docs/explanation/architecture.md: docs/images/drawn-*.svg, light and dark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from xml.sax.saxutils import escape

FONT = "font-family='system-ui, sans-serif' font-size='13'"
STEP = 34  # from one line of a sequence to the next
HEAD = 44


@dataclass(frozen=True)
class Colors:
    """Paper, ink, lines, boxes, and one color for what Aliquot adds."""

    paper: str
    ink: str
    line: str
    box: str
    own: str


LIGHT = Colors("#ffffff", "#1f2328", "#59636e", "#f6f8fa", "#ddf4ff")
DARK = Colors("#0d1117", "#f0f6fc", "#9198a1", "#21262d", "#0c2d6b")


@dataclass(frozen=True)
class Box:
    """A process, or a thing; ``words`` are its lines, the first one bold."""

    x: int
    y: int
    width: int
    height: int
    words: tuple[str, ...]
    is_own: bool = True


@dataclass(frozen=True)
class Arrow:
    """A line with a head at its end, and the words above its middle."""

    x1: int
    y1: int
    x2: int
    y2: int
    words: str = ""
    has_two_heads: bool = False


@dataclass(frozen=True)
class Say:
    """One line of a sequence: a message from a column to another, or a note in one."""

    of: int
    to: int
    words: str


def picture(title: str, width: int, height: int, parts: Iterator[str], colors: Colors) -> str:
    """Return the file."""
    arrow = f"<path d='M0,0 L8,4 L0,8 z' fill='{colors.line}'/>"
    marker = "markerWidth='8' markerHeight='8' refX='8' refY='4' orient='auto-start-reverse'"
    lines = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' {FONT} role='img'>",
        f"<title>{escape(title)}</title>",
        f"<defs><marker id='head' {marker}>{arrow}</marker></defs>",
        f"<rect width='{width}' height='{height}' fill='{colors.paper}'/>",
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _text(x: float, y: float, words: str, colors: Colors, weight: str = "", anchor: str = "middle") -> str:
    bold = f" font-weight='{weight}'" if weight else ""
    return f"<text x='{x:g}' y='{y:g}' text-anchor='{anchor}' fill='{colors.ink}'{bold}>{escape(words)}</text>"


def _box(box: Box, colors: Colors) -> Iterator[str]:
    place = f"x='{box.x}' y='{box.y}' width='{box.width}' height='{box.height}' rx='6'"
    yield f"<rect {place} fill='{colors.own if box.is_own else colors.box}' stroke='{colors.line}'/>"
    first = box.y + box.height / 2 + 5 - 9 * (len(box.words) - 1)
    for number, words in enumerate(box.words):
        yield _text(box.x + box.width / 2, first + 18 * number, words, colors, "" if number else "bold")


def _line(arrow: Arrow, colors: Colors) -> Iterator[str]:
    ends = f"x1='{arrow.x1}' y1='{arrow.y1}' x2='{arrow.x2}' y2='{arrow.y2}'"
    start = " marker-start='url(#head)'" if arrow.has_two_heads else ""
    yield f"<line {ends} stroke='{colors.line}' stroke-width='1.5' marker-end='url(#head)'{start}/>"
    if arrow.words:
        is_upright = arrow.x1 == arrow.x2
        x = arrow.x1 + 8 if is_upright else (arrow.x1 + arrow.x2) / 2
        y = (arrow.y1 + arrow.y2) / 2 + (5 if is_upright else -6)
        yield _text(x, y, arrow.words, colors, anchor="start" if is_upright else "middle")


def boxes(parts: Sequence[Box | Arrow], colors: Colors) -> Iterator[str]:
    """Draw boxes and the arrows between them."""
    for part in parts:
        yield from _box(part, colors) if isinstance(part, Box) else _line(part, colors)


def sequence(
    columns: Sequence[tuple[str, bool]], places: Sequence[int], said: Sequence[Say], colors: Colors
) -> Iterator[str]:
    """Draw what goes from one process to another, from top to bottom. A message to its own column is a note there."""
    end = HEAD + STEP * len(said) + 16
    for (name, is_own), x in zip(columns, places, strict=True):
        yield f"<line x1='{x}' y1='{HEAD - 4}' x2='{x}' y2='{end}' stroke='{colors.line}' stroke-dasharray='3 4'/>"
        yield from _box(Box(x - 62, 8, 124, 30, (name,), is_own), colors)
    for number, one in enumerate(said):
        y = HEAD + STEP * (number + 1)
        if one.of == one.to:
            half = 4 * len(one.words) + 10
            yield from _note(places[one.of], y, half, one.words, colors)
        else:
            yield from _line(Arrow(places[one.of], y, places[one.to], y, one.words), colors)


def _note(x: int, y: int, half: int, words: str, colors: Colors) -> Iterator[str]:
    place = f"x='{x - half}' y='{y - 16}' width='{2 * half}' height='24' rx='4'"
    yield f"<rect {place} fill='{colors.box}' stroke='{colors.line}'/>"
    yield _text(x, y + 1, words, colors)


PROCESSES: tuple[Box | Arrow, ...] = (
    Box(20, 40, 130, 60, ("Browser", "JupyterLab"), is_own=False),
    Box(230, 40, 150, 60, ("Gateway", "sizes, queue, users")),
    Box(470, 40, 130, 60, ("Relay", "one a kernel")),
    Box(470, 180, 130, 76, ("Kernel", "your Python", "with the hook"), is_own=False),
    Box(230, 188, 150, 60, ("Node agent", "one a machine")),
    Box(470, 330, 130, 46, ("NVIDIA driver", "CUDA, NVML, GPU"), is_own=False),
    Box(20, 188, 130, 60, ("Host memory", "swapped out"), is_own=False),
    Arrow(150, 70, 230, 70, "cells", has_two_heads=True),
    Arrow(380, 70, 470, 70, "a link", has_two_heads=True),
    Arrow(535, 100, 535, 180, "cells, output", has_two_heads=True),
    Arrow(305, 100, 305, 188, "grants", has_two_heads=True),
    Arrow(380, 218, 470, 218, "turns", has_two_heads=True),
    Arrow(535, 256, 535, 330, "counted calls"),
    Arrow(230, 218, 150, 218, "keeps"),
    Arrow(305, 248, 470, 353),
)
BROWSER, GATEWAY, RELAY, KERNEL, AGENT = (
    ("Browser", False),
    ("Gateway", True),
    ("Relay", True),
    ("Kernel + hook", True),
    ("Node agent", True),
)
CELL = (
    Say(0, 1, "run the cell"),
    Say(1, 2, "number it, pass it on"),
    Say(2, 3, "run it"),
    Say(3, 4, "is it my turn?"),
    Say(4, 3, "memory is there"),
    Say(3, 3, "the GPU computes"),
    Say(3, 2, "output"),
    Say(2, 1, "output, kept"),
    Say(1, 0, "output"),
)
SWAP = (
    Say(2, 1, "a cell needs memory"),
    Say(1, 0, "the turn ends"),
    Say(0, 0, "copies to host memory"),
    Say(0, 1, "the GPU memory is free"),
    Say(1, 2, "go on"),
    Say(2, 2, "computes"),
    Say(0, 1, "later: a cell of A"),
    Say(1, 0, "room is there: come back"),
    Say(0, 0, "same bytes, same addresses"),
)
RESTART = (
    Say(1, 1, "ends: crash or upgrade"),
    Say(3, 2, "output of a cell"),
    Say(2, 2, "keeps it"),
    Say(1, 1, "starts, reads its records"),
    Say(1, 2, "here I am again"),
    Say(0, 1, "connects again"),
    Say(2, 1, "what was kept"),
    Say(1, 0, "output"),
)


def _height(said: Sequence[Say]) -> int:
    return HEAD + STEP * len(said) + 28


def drawings() -> dict[str, Callable[[], str]]:
    """Return what writes each file, by its path."""
    kernels = [("Kernel A, idle", False), AGENT, ("Kernel B", False)]
    scenes: dict[str, tuple[str, int, int, Callable[[Colors], Iterator[str]]]] = {
        "processes": ("The processes of Aliquot", 640, 396, partial(boxes, PROCESSES)),
        "cell": (
            "A cell runs",
            800,
            _height(CELL),
            partial(sequence, [BROWSER, GATEWAY, RELAY, KERNEL, AGENT], [80, 230, 400, 560, 720], CELL),
        ),
        "swap": ("Two kernels take turns", 640, _height(SWAP), partial(sequence, kernels, [120, 330, 540], SWAP)),
        "restart": (
            "The gateway restarts",
            640,
            _height(RESTART),
            partial(sequence, [BROWSER, GATEWAY, RELAY, KERNEL], [80, 250, 410, 560], RESTART),
        ),
    }
    return {
        f"docs/images/drawn-{name}{suffix}.svg": partial(_draw, *scene, colors)
        for name, scene in scenes.items()
        for suffix, colors in (("", LIGHT), ("-dark", DARK))
    }


def _draw(title: str, width: int, height: int, parts: Callable[[Colors], Iterator[str]], colors: Colors) -> str:
    return picture(title, width, height, parts(colors), colors)
