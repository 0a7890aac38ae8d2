"""Pictures of a page for the documents: light and dark, as PNG files with a palette.

The palette makes them a third as large. The browser counts the colors, for it can read its own
pictures; the code here writes the file.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from playwright.sync_api import FloatRect, Locator, Page


class Themed(Protocol):
    """A page that can be light and dark."""

    @property
    def page(self) -> Page: ...

    def in_both_themes(self) -> Iterator[str]: ...


MAX_BYTES = 60_000
_COLOURS = 80
# Halves the box of colors with the most pixels times its widest side, until there are as many boxes
# as colors.
_REDUCE = """async ([png, want]) => {
  const bitmap = await createImageBitmap(await (await fetch('data:image/png;base64,' + png)).blob());
  const {width, height} = bitmap;
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext('2d');
  context.drawImage(bitmap, 0, 0);
  const pixels = new Uint32Array(context.getImageData(0, 0, width, height).data.buffer);
  const counts = new Map();
  for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) ?? 0) + 1);
  const part = (colour, side) => (colour >> (8 * side)) & 255;
  const measure = colours => {
    const spans = [0, 1, 2].map(side => {
      let low = 255, high = 0;
      for (const [colour] of colours) {
        low = Math.min(low, part(colour, side));
        high = Math.max(high, part(colour, side));
      }
      return high - low;
    });
    const side = spans.indexOf(Math.max(...spans));
    const weight = colours.reduce((sum, [, count]) => sum + Math.sqrt(count), 0);
    return {colours, side, worth: colours.length > 1 ? spans[side] * weight : 0};
  };
  const boxes = [measure([...counts])];
  while (boxes.length < want) {
    const index = boxes.reduce((best, box, i) => (box.worth > boxes[best].worth ? i : best), 0);
    const {colours, side, worth} = boxes[index];
    if (worth === 0) break;
    colours.sort((a, b) => part(a[0], side) - part(b[0], side));
    const half = colours.reduce((sum, [, count]) => sum + Math.sqrt(count), 0) / 2;
    let at = 0, sum = 0;
    while (at < colours.length - 1 && (at === 0 || sum < half)) sum += Math.sqrt(colours[at++][1]);
    boxes.splice(index, 1, measure(colours.slice(0, at)), measure(colours.slice(at)));
  }
  const place = new Map();
  const palette = boxes.map(({colours}, i) => {
    // The colour that most of them have, exactly: plain areas must not drift.
    const most = colours.reduce((best, one) => (one[1] > best[1] ? one : best));
    for (const [colour] of colours) place.set(colour, i);
    return [0, 1, 2].map(side => part(most[0], side));
  });
  const bytes = Uint8Array.from(pixels, pixel => place.get(pixel));
  let text = '';
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return {width, height, palette, pixels: btoa(text)};
}"""


def take(lab: Themed, target: Path, clip: FloatRect | None = None, settle: Callable[[], object] = lambda: None) -> None:
    """Write target.png and target-dark.png: the page, or the part of it within the clip.

    ``settle`` makes both show the same: a theme of another height scrolls the page.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for theme in lab.in_both_themes():
        lab.page.mouse.move(1, 1)
        settle()
        shot = lab.page.screenshot(clip=clip, animations="disabled", caret="hide")
        found: dict[str, Any] = lab.page.evaluate(_REDUCE, [base64.b64encode(shot).decode(), _COLOURS])
        path = target.with_name(f"{target.name}{'' if theme == 'light' else '-dark'}.png")
        path.write_bytes(_png(found))
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"{path} has {path.stat().st_size} bytes, more than {MAX_BYTES}: show less of the page")


def around(*parts: Locator, margin: int = 12) -> FloatRect:
    """Return the rectangle that holds these parts of the page, and a margin."""
    boxes = [box for part in parts if (box := part.bounding_box()) is not None]
    left, top = min(box["x"] for box in boxes), min(box["y"] for box in boxes)
    right, bottom = (max(box[x] + box[size] for box in boxes) for x, size in (("x", "width"), ("y", "height")))
    x, y = max(0.0, left - margin), max(0.0, top - margin)
    return {"x": x, "y": y, "width": right + margin - x, "height": bottom + margin - y}


def _png(found: dict[str, Any]) -> bytes:
    width, height = found["width"], found["height"]
    pixels = base64.b64decode(found["pixels"])
    rows = b"".join(b"\0" + pixels[y * width : (y + 1) * width] for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    palette = bytes(value for colour in found["palette"] for value in colour)
    parts = [(b"IHDR", header), (b"PLTE", palette), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in parts)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
