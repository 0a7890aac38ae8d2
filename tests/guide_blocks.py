"""The Python of a guide's section, as a user would paste it."""

from __future__ import annotations

import re
from pathlib import Path

_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
HUB_GUIDE = Path(__file__).resolve().parents[1] / "docs" / "how-to" / "jupyterhub.md"


def blocks_of(guide: Path, heading: str = "") -> list[str]:
    """Return the blocks below a heading of the second level, or all."""
    text = guide.read_text()
    if heading:
        text = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = _BLOCK.findall(text)
    assert blocks, f"{guide} has no block of Python below {heading!r}"
    return blocks
