"""Count what a start of JupyterLab takes before its first paint: requests, bytes, time of the page's main thread.

A trace of Chromium has the thread's own time, so that other work of the machine counts for little. It
makes the start itself slower: times of starts are measured without it.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from report import Row

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.labextension.lab_process import LabProcess

_PAINT = "first-contentful-paint"
_CATEGORIES = ["devtools.timeline", "toplevel", "loading"]
_TASK, _PAINTED = "ThreadControllerImpl::RunTask", "firstContentfulPaint"
# The moment of the first paint, and the bodies' bytes of each request that began before it. Its entry comes later.
_LOADED = f"""async () => {{
  const painted = await new Promise(resolve => new PerformanceObserver(list => {{
    for (const entry of list.getEntriesByName('{_PAINT}')) resolve(entry.startTime);
  }}).observe({{ type: 'paint', buffered: true }}));
  await new Promise(resolve => setTimeout(resolve, 500));
  const entries = performance.getEntriesByType('resource').filter(entry => entry.startTime <= painted);
  return [painted, entries.map(entry => entry.encodedBodySize)];
}}"""


class Load(NamedTuple):
    """The bodies of the requests that began before the first paint, in bytes, and milliseconds of the main thread."""

    bodies: list[int]
    main_thread: float


def load_rows(browser: Browser, labs: Mapping[str, LabProcess], starts: int) -> list[Row]:
    """Return the counts of so many starts of each, in turn."""
    found: dict[str, list[Load]] = {name: [] for name in labs}
    for _ in range(starts):
        for name, lab in labs.items():
            found[name].append(_load(browser, lab))
    rows = []
    for name, loads in found.items():
        before = f"before the first paint, {name} (median of {starts})"
        kilobytes = [sum(load.bodies) / 1000 for load in loads]
        rows += [
            Row(f"requests begun {before}", statistics.median(len(load.bodies) for load in loads), ""),
            Row(f"their bodies {before}", statistics.median(kilobytes), "kB"),
            Row(f"main thread {before}", statistics.median(load.main_thread for load in loads), "ms"),
        ]
    return rows


def _load(browser: Browser, lab: LabProcess) -> Load:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    try:
        context.add_init_script("performance.setResourceTimingBufferSize(2000)")
        page = context.new_page()
        browser.start_tracing(page=page, categories=_CATEGORIES)
        page.goto(lab.lab_url)
        painted, bodies = page.evaluate(_LOADED)
        trace = json.loads(browser.stop_tracing())
    finally:
        context.close()
    return Load(bodies, main_thread_ms(trace["traceEvents"], float(painted)))


def main_thread_ms(events: list[dict[str, Any]], painted_ms: float) -> float:
    """Return the processor time of the thread that painted, from the page's start to its first paint."""
    paint = max((event for event in events if event["name"] == _PAINTED), key=lambda event: event["ts"])
    thread, end = (paint["pid"], paint["tid"]), paint["ts"]
    tasks = [
        event
        for event in events
        if event["name"] == _TASK and (event["pid"], event["tid"]) == thread and "tdur" in event
    ]
    return sum(task["tdur"] for task in tasks if end - 1000 * painted_ms <= task["ts"] <= end) / 1000
