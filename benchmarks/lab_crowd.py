"""Measure the administrator's view over ten thousand kernels: the longest task of the page while it is scrolled.

The reports are scripted inside the browser, and come again every few seconds, as the page asks for them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from report import ROOT, Row, at_most

sys.path.insert(0, str(ROOT / "tests" / "labextension"))  # the same Lab and reports as the browser tests'

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.labextension.admin_script import AdminScript, a_holder
    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import LabProcess
else:
    from admin_script import AdminScript, a_holder
    from lab_page import LabPage
    from lab_process import LabProcess

_COMMAND = "aliquot:show-administration"
_GRID = ".aliquot-Grid"
_PATIENCE_MS = 120_000
_STEP_PX, _STEP_MS = 900, 50
# Browsers call a task long from here on; a reader notices a delay from a tenth of a second on.
_LONG_MS, _STALL_MS = 50.0, 100.0
# Time between frames, and the tasks that the browser calls long.
_WATCH = """() => {
  window.seen = { frames: [], tasks: [] };
  let last = performance.now();
  const look = now => {
    window.seen.frames.push(now - last);
    last = now;
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
  new PerformanceObserver(list => {
    window.seen.tasks.push(...list.getEntries().map(entry => entry.duration));
  }).observe({ type: 'longtask' });
}"""


def crowd_rows(browser: Browser, kernels: int, seconds: float) -> list[Row]:
    """Return the longest task and frame while a view of so many kernels is scrolled for so long."""
    with LabProcess(with_aliquot=True) as lab:
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        context.set_default_timeout(_PATIENCE_MS)
        page = context.new_page()
        with AdminScript([a_holder(place) for place in range(kernels)]).served(page) as script:
            _open(LabPage(page).open(lab.lab_url), kernels)
            page.evaluate(_WATCH)
            before = script.requests
            _scroll(page, seconds)
            seen = page.evaluate("() => window.seen")
            reads = (script.requests - before) // 3  # three reports each time
        context.close()
    where = f"scrolling {kernels} kernels of the administrator's view for {seconds:g} s"
    longest = max(seen["tasks"], default=0.0)
    return [
        at_most(f"{where}: longest task of {_LONG_MS:g} ms or more (0: none)", longest, "ms", _STALL_MS),
        Row(f"… such tasks, with {reads} new reports meanwhile", len(seen["tasks"]), ""),
        Row("… longest time between two frames", max(seen["frames"], default=0.0), "ms"),
    ]


def _open(lab: LabPage, kernels: int) -> None:
    lab.page.wait_for_function(f"jupyterapp.commands.isVisible('{_COMMAND}')")
    lab.finish_command(_COMMAND)
    lab.page.get_by_text(f"{kernels} of {kernels} kernels").wait_for()
    lab.page.wait_for_load_state("networkidle")


def _scroll(page: Page, seconds: float) -> None:
    """Turn the wheel down and up again, as a reader does."""
    page.locator(_GRID).hover()
    steps = int(seconds * 1000 / _STEP_MS)
    for step in range(steps):
        page.mouse.wheel(0, _STEP_PX if step < steps // 2 else -_STEP_PX)
        page.wait_for_timeout(_STEP_MS)
