"""Measure `1+1` in the browser, from the request to its reply: Aliquot and plain Jupyter.

Both take turns in one run.
"""

from __future__ import annotations

import json
import statistics
import sys
from typing import TYPE_CHECKING, Any

from report import ROOT, Row, at_most

sys.path.insert(0, str(ROOT / "tests" / "labextension"))  # the same Lab and page as the browser tests'

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import LabProcess
else:
    from lab_page import LabPage
    from lab_process import LabProcess

_ROUNDS = 6
_WARM_UP = 10
_PLAIN, _SIZED = "plain Jupyter", "Aliquot, kernel with 0.25 GPU"
_RUN = """async count => {
  const { kernel } = jupyterapp.shell.currentWidget.sessionContext.session;
  const took = [];
  for (let run = 0; run < count; run += 1) {
    const began = performance.now();
    await kernel.requestExecute({ code: '1+1' }).done;
    took.push(performance.now() - began);
  }
  return took;
}"""


class _AnyLab(LabPage):
    """JupyterLab with or without Aliquot's sidebar."""

    def wait_until_up(self) -> None:
        self.page.locator("#jupyterlab-splash").wait_for(state="detached")
        self.page.locator("#jp-main-statusbar").wait_for()


def latency_rows(browser: Browser, requests: int) -> list[Row]:
    """Measure two servers of one environment, a page and a kernel each.

    Each gets *requests* in rounds that take turns. The next round begins with the page that was
    last, and each turn with requests that do not count: the processor's caches of a page, its
    server and its kernel are then of this turn, not of the one before.
    """
    with (
        LabProcess(with_aliquot=False, disabled=("@jupyter-aliquot/labextension",)) as plain,
        LabProcess(with_aliquot=True) as ours,
        browser.new_context() as plain_context,
        browser.new_context() as our_context,
    ):
        pages = {
            _PLAIN: _a_page(plain_context, plain, "python3"),
            _SIZED: _a_page(our_context, ours, "python3.gpu-0.25"),
        }
        took: dict[str, list[float]] = {name: [] for name in pages}
        for part in range(_ROUNDS):
            for name, page in list(pages.items())[:: 1 if part % 2 == 0 else -1]:
                page.evaluate(_RUN, _WARM_UP)
                found = page.evaluate(_RUN, max(1, requests // _ROUNDS))
                took[name] += found
                print(f"1+1: round {part + 1} of {_ROUNDS}, {name} {statistics.median(found):.1f} ms", flush=True)
    return rows_of(took[_PLAIN], took[_SIZED])


def rows_of(plain: list[float], sized: list[float]) -> list[Row]:
    """Return rows in which plain Jupyter's figures are the bounds of Aliquot's."""
    rows = []
    for word, figure in (("median", statistics.median), ("95th percentile", percentile_95)):
        bound = figure(plain)
        rows.append(Row(f"1+1 in the browser, {_PLAIN} ({word})", bound, "ms"))
        rows.append(at_most(f"1+1 in the browser, {_SIZED} ({word})", figure(sized), "ms", bound))
    return rows


def _a_page(context: Any, lab: LabProcess, kernel_name: str) -> Page:
    context.set_default_timeout(120_000)
    page: Page = context.new_page()
    notebook = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (lab.notebooks / "latency.ipynb").write_text(json.dumps(notebook))
    _AnyLab(page).open(lab.lab_url).open_notebook("latency.ipynb", kernel_name)
    return page


def percentile_95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1]
