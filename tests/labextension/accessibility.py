"""Run axe-core in Lab's page: find violations of WCAG 2, level A or AA, in our own parts.

Lab's parts are Lab's to mend.
"""

from __future__ import annotations

import base64
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

_AXE = Path(__file__).resolve().parents[2] / "node_modules" / "axe-core" / "axe.min.js"
_LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
# Lab's own toolbar button writes aria-pressed on an element of no role; its users cannot mend it.
_OF_LAB = [("aria-allowed-attr", "<jp-button ")]
# Lab's body has no height and hides overflowing content, so axe concludes that nothing here is
# visible.
_RUN = """async ([selector, tags]) => {
  document.body.style.overflow = 'visible';
  const options = {runOnly: {type: 'tag', values: tags}, resultTypes: ['violations']};
  const found = await axe.run({include: [[selector]]}, options).finally(() => { document.body.style.overflow = ''; });
  return found.violations.flatMap(rule => rule.nodes.map(node =>
    ({rule: rule.id, where: node.target.join(' '), why: node.failureSummary, html: node.html})));
}"""

_COLORS = """async shot => {
  const bytes = Uint8Array.from(atob(shot), one => one.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes], {type: 'image/png'}));
  const context = new OffscreenCanvas(image.width, image.height).getContext('2d');
  context.drawImage(image, 0, 0);
  const pixels = new Uint32Array(context.getImageData(0, 0, image.width, image.height).data.buffer);
  const counts = new Map();
  pixels.forEach(pixel => counts.set(pixel, (counts.get(pixel) ?? 0) + 1));
  return [...counts.values()].map(count => count / pixels.length);
}"""


@functools.cache
def _program() -> str:
    if not _AXE.exists():
        pytest.skip(f"{_AXE} is missing; `jlpm install --immutable` fetches it")
    return _AXE.read_text()


def violations(page: Page, selector: str) -> list[str]:
    """Return axe-core's findings in the parts that the selector names; fail if it names none.

    Bars that still grow and notices that fade in have colors of their own: all animations are ended
    first.
    """
    page.locator(selector).first.wait_for()
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(_program())
    page.evaluate("() => document.getAnimations().forEach(it => { try { it.finish(); } catch { it.cancel(); } })")
    found: list[dict[str, Any]] = page.evaluate(_RUN, [selector, _LEVELS])
    ours = [each for each in found if not any(each["rule"] == r and each["html"].startswith(h) for r, h in _OF_LAB)]
    return [f"{each['rule']}: {each['where']}: {each['why']} ({each['html'][:200]})" for each in ours]


def colors(shown: Locator) -> list[float]:
    """Return the share of each color in what the page paints of an element, the most frequent first."""
    shot = base64.b64encode(shown.screenshot(animations="disabled")).decode()
    shares: list[float] = shown.page.evaluate(_COLORS, shot)
    return sorted(shares, reverse=True)
