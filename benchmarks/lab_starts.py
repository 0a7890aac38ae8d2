"""Measure the start of JupyterLab in the browser: plain Jupyter, and with the lab extension.

Both take turns in one run. Each page is a new one without anything cached. Plain Jupyter has the lab
extension disabled: its entry and its list of plugins are loaded there, too.
"""

from __future__ import annotations

import math
import statistics
import sys
from typing import TYPE_CHECKING

from lab_load import load_rows
from report import ROOT, Row, at_most

sys.path.insert(0, str(ROOT / "tests" / "labextension"))  # the same Lab as the browser tests'

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.labextension.lab_process import LabProcess
else:
    from lab_process import LabProcess

# A median of so many starts has the same count of requests each time.
_MOST_COUNTED = 5
_PLAIN, _OURS = "plain Jupyter", "with Aliquot"
_FRAME_MS = 1000 / 60
_PATIENCE_MS = 120_000
# The moment of the frame after Lab's splash went.
_UNTIL_USABLE = """
window.usable = new Promise(resolve => {
  let wasThere = false;
  const look = () => {
    const isThere = document.getElementById('jupyterlab-splash') !== null;
    const isOver = wasThere && !isThere;
    wasThere ||= isThere;
    requestAnimationFrame(isOver ? () => resolve(performance.now()) : look);
  };
  look();
});"""
# The entry of a paint may come after the frame that it is about.
_TIMES = """async () => {
  const painted = await new Promise(resolve => new PerformanceObserver(list => {
    for (const entry of list.getEntriesByName('first-contentful-paint')) resolve(entry.startTime);
  }).observe({ type: 'paint', buffered: true }));
  return [painted, await window.usable];
}"""


def start_rows(browser: Browser, starts: int) -> list[Row]:
    """Return the times of so many starts of each: until something is painted, and until the splash went."""
    with (
        LabProcess(with_aliquot=False, disabled=("@jupyter-aliquot/labextension",)) as plain,
        LabProcess(with_aliquot=True) as ours,
    ):
        labs = {_PLAIN: plain, _OURS: ours}
        for lab in labs.values():
            _start(browser, lab)  # the server's first answer
        took: dict[str, list[tuple[float, float]]] = {name: [] for name in labs}
        for part in range(starts):
            for name, lab in list(labs.items())[:: 1 if part % 2 == 0 else -1]:
                took[name].append(_start(browser, lab))
                painted, usable = took[name][-1]
                print(f"start {part + 1} of {starts}, {name}: {painted:.0f}, {usable:.0f} ms", flush=True)
        counts = load_rows(browser, labs, min(starts, _MOST_COUNTED))
    return [*rows_of(took[_PLAIN], took[_OURS]), *counts]


def rows_of(plain: list[tuple[float, float]], ours: list[tuple[float, float]]) -> list[Row]:
    """Return the times of both, and how much later Aliquot is: the two starts of a turn are a pair."""
    painted, usable = ([[one[part] for one in times] for times in (plain, ours)] for part in (0, 1))
    return [
        *_both("first paint of JupyterLab", painted[0], painted[1], bound=_FRAME_MS),
        *_both("JupyterLab usable", usable[0], usable[1], bound=None),
    ]


def _both(what: str, plain: list[float], ours: list[float], bound: float | None) -> list[Row]:
    later = [mine - theirs for theirs, mine in zip(plain, ours, strict=True)]
    low, high = interval_95(later)
    name = f"{what}, how much later with Aliquot (median of {len(later)} pairs)"
    middle = statistics.median(later)
    return [
        Row(f"{what}, {_PLAIN} (median)", statistics.median(plain), "ms"),
        Row(f"{what}, {_OURS} (median)", statistics.median(ours), "ms"),
        Row(name, middle, "ms") if bound is None else at_most(name, middle, "ms", bound),
        Row("… from (95 % interval of that median)", low, "ms"),
        Row("… to", high, "ms"),
    ]


def interval_95(values: list[float]) -> tuple[float, float]:
    """Return an interval that holds the median of what *values* are drawn from, at 95 %, by order statistics.

    It assumes no distribution: a value lies below that median as often as a coin shows heads. Few
    values give all that they span.
    """
    ranked, tail, below = sorted(values), 0.5 ** len(values), 0
    while tail + math.comb(len(ranked), below + 1) * 0.5 ** len(ranked) <= 0.025 and below + 1 < len(ranked) // 2:
        below += 1
        tail += math.comb(len(ranked), below) * 0.5 ** len(ranked)
    return ranked[below], ranked[-1 - below]


def _start(browser: Browser, lab: LabProcess) -> tuple[float, float]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    try:
        context.set_default_timeout(_PATIENCE_MS)
        context.add_init_script(_UNTIL_USABLE)
        page = context.new_page()
        page.goto(lab.lab_url)
        painted, usable = page.evaluate(_TIMES)
    finally:
        context.close()
    return float(painted), float(usable)
