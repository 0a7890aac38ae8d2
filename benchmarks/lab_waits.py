"""Waits that a page shows: a resize in every place, a connection next to a queue, a cell's stop."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from report import ROOT, Row, at_most

sys.path.insert(0, str(ROOT / "tests" / "labextension"))  # the same Lab and page as the browser tests'

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.labextension.desk import Desk
    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import LabProcess
    from tests.labextension.resizes import IN_LAB, PYTHON, SIZES, resize
else:
    from desk import Desk
    from lab_page import LabPage
    from lab_process import LabProcess
    from resizes import IN_LAB, PYTHON, SIZES, resize

_IS_IDLE = "() => jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'"
_STOP = """async () => {
  const { content, sessionContext } = jupyterapp.shell.currentWidget;
  const { outputs } = content.widgets[0].model;
  const until = async isSo => {
    for (const began = performance.now(); !isSo(); await new Promise(resolve => setTimeout(resolve, 2))) {
      if (performance.now() - began > 20000) throw new Error('the cell was not run, or not stopped');
    }
  };
  // The output of the stop before comes ahead of its end, and the cell runs until then.
  await until(() => content.widgets[0].model.executionState === 'idle');
  outputs.clear();
  void jupyterapp.commands.execute('notebook:run-all-cells');
  await until(() => content.widgets[0].model.executionState === 'running');
  const began = performance.now();
  await sessionContext.session.kernel.interrupt();
  await until(() => outputs.toJSON().some(output => output.ename === 'KeyboardInterrupt'));
  return (performance.now() - began) / 1000;
}"""
_STOPS = 5
_CONNECTIONS = 3  # of Desk.seconds_to_connect, whose answer is the least of its own tries


def wait_rows(browser: Browser, repeats: int) -> list[Row]:
    """Measure a server and a page of their own.

    *repeats* rounds of resizes, then connections next to a waiting kernel.
    """
    with LabProcess(with_aliquot=True) as lab, browser.new_context() as context:
        context.set_default_timeout(120_000)
        desk = Desk(LabPage(context.new_page()).open(lab.lab_url), lab.notebooks)
        resizes = _seconds_to_show(desk, repeats)
        desk.end_kernels()
        connections = _seconds_to_connect(desk)
        stops = _seconds_to_stop(desk)
    return [
        at_most("resize to the last of six places that tell it (slowest)", max(resizes) * 1e3, "ms", 500),
        at_most("another notebook's connection while a kernel waits (slowest)", max(connections) * 1e3, "ms", 1000),
        at_most("stop of a cell that waits in the queue (slowest)", max(stops) * 1e3, "ms", 1000),
    ]


def _seconds_to_show(desk: Desk, repeats: int) -> list[float]:
    desk.open(desk.notebook("1"), "python3.gpu-0.25")
    desk.page.wait_for_function(_IS_IDLE)
    desk.lab.finish_command("running:show-panel")
    desk.page.locator("#jp-running-sessions").get_by_text(f"{PYTHON} · 0.25 GPU").first.wait_for()
    found = []
    plain, last = SIZES[:-1], SIZES[-1:]  # a memory limit stays once it is set
    for change, label in plain * repeats + last:
        told = resize(desk.page, change, label, IN_LAB)
        missing = {place for place, _ in IN_LAB} - set(told["seconds"])
        if told["status"] != 200 or missing:
            raise SystemExit(
                f"Requested {label}, but the status is {told['status']}, and {sorted(missing)} did not report"
            )
        found.append(max(told["seconds"].values()))
        print(f"resize to {label}: told everywhere in {found[-1] * 1e3:.0f} ms", flush=True)
    return found


def _seconds_to_connect(desk: Desk) -> list[float]:
    desk.start_kernel("python3.gpu-1")
    desk.open(desk.notebook("1"), "python3.gpu-0.5")
    desk.open(desk.notebook("1"), "python3")
    found = []
    for _ in range(_CONNECTIONS):
        found.append(desk.seconds_to_connect())
        print(f"connection beside a waiting kernel: {found[-1] * 1e3:.0f} ms", flush=True)
    return found


def _seconds_to_stop(desk: Desk) -> list[float]:
    """Return the seconds to stop a cell that waits.

    Its kernel waits for a GPU, as in `_seconds_to_connect`.
    """
    desk.open(desk.notebook("1"), "python3.gpu-0.25")
    found = []
    for _ in range(_STOPS):
        found.append(float(desk.page.evaluate(_STOP)))
        print(f"stop of a cell in the queue: {found[-1] * 1e3:.0f} ms", flush=True)
    return found
