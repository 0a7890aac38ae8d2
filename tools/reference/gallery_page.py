"""Make docs/explanation/gallery.md from the pictures of the other pages, in the order of docs/README.md."""

from __future__ import annotations

import re
from pathlib import Path

from .tables import GENERATED

DOCS = Path(__file__).resolve().parents[2] / "docs"
GALLERY = "explanation/gallery.md"
_PAGE = re.compile(r"\]\(((?:how-to|explanation)/[a-z0-9-]+\.md)\)")
_PICTURE = re.compile(r'^<picture>.*\.png"></picture>$', re.MULTILINE)
_HEAD = f"""\
# Pictures

{GENERATED}

Pictures of a real gateway on the software GPU, in your browser's theme. `make screenshot` takes
them anew.
"""


def gallery_page() -> str:
    """Return the whole page: one section a page with pictures."""
    lines = [_HEAD]
    for name in dict.fromkeys(_PAGE.findall((DOCS / "README.md").read_text())):
        if name == GALLERY:
            continue
        text = (DOCS / name).read_text()
        if pictures := _PICTURE.findall(text):
            title = text.partition("\n")[0].removeprefix("# ")
            lines += [f"## [{title}](../{name})", ""]
            lines += [line for picture in pictures for line in (picture, "")]
    return "\n".join(lines)
