"""The lab extension in real Chromium: size, time until panel and changes are painted, idle cost.

Two JupyterLabs of their own: one with a real gateway, node agent and kernel on the software GPU;
one without, whose status is scripted (100 kernels, 64 devices, nothing changing). Bounds: bundle of the
sidebar ≤ 80 kB gzipped; first paint ≤ 300 ms after activation and state change to pixel ≤ 500 ms, medians
and 95th percentiles; a resize shown everywhere ≤ 500 ms and a connection next to a waiting kernel ≤
1 s, slowest; idling ≤ 2 % of a core; no task of 100 ms while 10,000 kernels are scrolled; a cell from request
to reply ≤ the same in plain Jupyter, measured in turn with it; Lab's own first paint with the extension ≤
one frame later than without.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

from lab_crowd import crowd_rows
from lab_latency import latency_rows, percentile_95
from lab_starts import start_rows
from lab_waits import wait_rows
from report import ROOT, Row, at_most, publish, read_arguments

sys.path.insert(0, str(ROOT / "tests" / "labextension"))  # the same Lab, page and script as the browser tests'
sys.path.insert(0, str(ROOT / "tools"))

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import CHROMIUM, CHROMIUM_ARGS, LabProcess
    from tests.labextension.status_script import StatusScript
    from tools.bundle_size import MOST_SIDEBAR_BYTES, BundleSize, bundle_size
else:
    from bundle_size import MOST_SIDEBAR_BYTES, BundleSize, bundle_size
    from lab_page import LabPage
    from lab_process import CHROMIUM, CHROMIUM_ARGS, LabProcess
    from status_script import StatusScript

_DEADLINE_SECONDS = 120.0
_AGAIN_SECONDS = 10.0
_KERNELS, _DEVICES = 100, 64
_SMOKE = {
    "requests": 10,
    "resizes": 1,
    "paints": 2,
    "changes": 2,
    "starts": 1,
    "idle_seconds": 1.0,
    "settle_seconds": 0.5,
    "crowd": 200,
    "scroll_seconds": 1.0,
}
_PANEL = "#aliquot-gpu-kernels"
_SHOW = "aliquot:show-gpu-kernels"
_HOLD = """
from cuda.bindings import driver
driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(driver.cuDeviceGet(0)[1])[1])
held = driver.cuMemAlloc(256 << 20)
print("held" + "!")
"""
# From the command until the frame after the one in which the panel has figures: that frame is
# painted then.
_FIRST_PAINT = f"""() => new Promise(resolve => {{
  const began = performance.now();
  const look = () => {{
    const panel = document.querySelector('{_PANEL}');
    const isThere = panel?.isConnected && panel.offsetWidth > 0 && /GiB/.test(panel.textContent);
    requestAnimationFrame(isThere ? () => resolve(performance.now() - began) : look);
  }};
  void jupyterapp.commands.execute('{_SHOW}');
  look();
}})"""
# Each state that the panel's kernel gets, with the wall clock of the frame after the one that
# painted it.
_WATCH = f"""() => {{
  window.painted = [];
  let last = null;
  const look = () => {{
    const state = document.querySelector('{_PANEL} li[data-state]')?.dataset.state;
    if (state && state !== last) {{
      last = state;
      requestAnimationFrame(() => requestAnimationFrame(() => window.painted.push([state, Date.now()])));
    }}
  }};
  const options = {{ attributes: true, childList: true, subtree: true, characterData: true }};
  new MutationObserver(look).observe(document.querySelector('{_PANEL}'), options);
  look();
}}"""


@contextmanager
def a_browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), headless=True, args=CHROMIUM_ARGS)
        yield browser
        browser.close()


@contextmanager
def a_page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(_DEADLINE_SECONDS * 1e3)
    yield context.new_page()
    context.close()


class Gateway:
    """The REST client of a running JupyterLab with Aliquot."""

    def __init__(self, lab: LabProcess) -> None:
        self._lab = lab

    def ask(self, method: str, path: str) -> Any:
        request = urllib.request.Request(
            f"{self._lab.url}{path}", method=method, headers={"Authorization": f"token {self._lab.token}"}
        )
        with urllib.request.urlopen(request, timeout=_DEADLINE_SECONDS) as answer:
            return json.loads(answer.read() or b"null")

    def move(self, kernel_id: str, action: str, state: str) -> dict[str, Any]:
        """Swap a kernel out or restore it; return its report in the state that it then has.

        The gateway refuses while the kernel still counts as busy, and one that uses its GPU meanwhile
        stays on it: the call then tries again.
        """
        deadline, kernel = time.monotonic() + _DEADLINE_SECONDS, self._report(kernel_id, "")
        while time.monotonic() < deadline:
            try:
                self.ask("POST", f"aliquot/api/v1/kernels/{kernel_id}/{action}")
            except HTTPError as error:
                if error.code != HTTPStatus.CONFLICT:
                    raise SystemExit(
                        f"Requested {action}, but the server answered {error}: {error.read().decode()}"
                    ) from error
                time.sleep(0.2)
                continue
            kernel = self._report(kernel_id, state)
            if kernel["state"] == state:
                return kernel
        raise SystemExit(
            f"Requested {action} for {_DEADLINE_SECONDS:.0f} s, but the kernel is {kernel['state']}, not {state}: "
            f"{kernel['reason']}, {kernel['residency']}"
        )

    def _report(self, kernel_id: str, state: str) -> dict[str, Any]:
        """Return the kernel's report in this state, or in any: the last one before another request is due."""
        again = time.monotonic() + _AGAIN_SECONDS
        while True:
            kernel: dict[str, Any] = self.ask("GET", f"aliquot/api/v1/kernels/{kernel_id}")
            if kernel["state"] == state or not state or time.monotonic() > again:
                return kernel
            time.sleep(0.05)


def first_paints(browser: Browser, lab: LabProcess, repeats: int) -> list[float]:
    """Return milliseconds, each on a page of its own, whose first look at the panel it is."""
    found = []
    for repeat in range(repeats):
        with a_page(browser) as page:
            LabPage(page).open(lab.lab_url)
            page.wait_for_load_state("networkidle")
            found.append(float(page.evaluate(_FIRST_PAINT)))
        print(f"first paint: {repeat + 1} of {repeats}, {found[-1]:.0f} ms", flush=True)
    return found


def a_notebook(lab: LabProcess) -> str:
    cell = {"cell_type": "code", "id": "hold", "source": _HOLD, "metadata": {}, "outputs": [], "execution_count": None}
    body = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (lab.notebooks / "holds.ipynb").write_text(json.dumps(body))
    return "holds.ipynb"


def changes_to_pixels(browser: Browser, lab: LabProcess, repeats: int) -> list[float]:
    """Return milliseconds from a kernel's new state at the agent until the panel's frame with it."""
    gateway, found = Gateway(lab), []
    with a_page(browser) as page:
        view = LabPage(page).open(lab.lab_url)
        view.open_notebook(a_notebook(lab), "python3.gpu-0.25")
        view.show_panel()
        view.start_command("notebook:run-all-cells")
        page.locator(".jp-OutputArea-output", has_text="held!").wait_for()
        kernel_id = gateway.ask("GET", "aliquot/api/v1/status")["kernels"][0]["id"]
        page.evaluate(_WATCH)
        page.wait_for_function("() => window.painted.length > 0")
        for repeat in range(repeats):
            action, state = [("swap-out", "swapped_out"), ("restore", "on_gpu")][repeat % 2]
            page.evaluate("() => { window.painted = [] }")
            since = datetime.fromisoformat(gateway.move(kernel_id, action, state)["residency"]["since"])
            handle = page.wait_for_function("s => window.painted.find(([state]) => state === s)", arg=state)
            found.append(float(handle.json_value()[1]) - since.timestamp() * 1e3)
            print(f"state change to pixel: {repeat + 1} of {repeats}, {state} {found[-1]:.0f} ms", flush=True)
    return found


def a_crowd() -> dict[str, Any]:
    """Return the status of a node with many devices and kernels."""
    status = StatusScript.example()
    device, kernel = status["devices"][0], status["kernels"][0]
    status["devices"] = [{**device, "index": i, "uuid": f"GPU-{i:02}"} for i in range(_DEVICES)]
    status["kernels"] = []
    for i in range(_KERNELS):
        one = copy.deepcopy(kernel)
        one["devices"][0].update(uuid=f"GPU-{i % _DEVICES:02}", index=i % _DEVICES)
        status["kernels"].append({**one, "id": f"k-{i}", "label": f"models/train-{i}.ipynb"})
    return status


def idle_percents(browser: Browser, lab: LabProcess, seconds: float, settle_seconds: float) -> tuple[float, float]:
    """Return the percentages of a core that the page's process uses, all threads.

    One is measured with the panel shown, one before it was.
    """
    with a_page(browser) as page:
        script = StatusScript()
        script.body = a_crowd()
        script.serve(page)
        view = LabPage(page).open(lab.lab_url)
        before = _used_percent(page, seconds, settle_seconds, "idle, panel not shown")
        view.show_panel()
        page.wait_for_function(
            "([panel, n]) => document.querySelectorAll(`${panel} li[data-state]`).length >= n", arg=[_PANEL, _KERNELS]
        )
        return _used_percent(page, seconds, settle_seconds, "idle, panel shown"), before


def _used_percent(page: Page, seconds: float, settle_seconds: float, what: str) -> float:
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def used() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return float(next(metric["value"] for metric in metrics if metric["name"] == "ProcessTime"))

    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(settle_seconds * 1e3)  # the garbage collections of loading and showing are over
    before, began = used(), time.monotonic()
    for part in range(5):
        page.wait_for_timeout(seconds * 200)
        print(f"{what}: {(part + 1) * seconds / 5:.0f} of {seconds:.0f} s", flush=True)
    found = (used() - before) / (time.monotonic() - began) * 100
    session.detach()
    return found


def rows_of(size: BundleSize, paints: list[float], changes: list[float], idle: tuple[float, float]) -> list[Row]:
    shown, before = idle
    crowd = f"{_KERNELS} kernels and {_DEVICES} devices, nothing changing"
    return [
        at_most("bundle of the sidebar, gzipped", size.sidebar / 1e3, "kB", MOST_SIDEBAR_BYTES / 1e3),
        Row("the same with the pages that are loaded when they are opened", size.whole / 1e3, "kB"),
        at_most("first paint of the panel after activation (median)", statistics.median(paints), "ms", 300),
        at_most("first paint of the panel after activation (95th percentile)", percentile_95(paints), "ms", 300),
        at_most("state change to pixel (median)", statistics.median(changes), "ms", 500),
        at_most("state change to pixel (95th percentile)", percentile_95(changes), "ms", 500),
        at_most(f"page with the panel shown: {crowd}", shown, "% of a core", 2),
        Row("the same page before the panel is shown", before, "% of a core"),
    ]


def panel_rows(browser: Browser, arguments: argparse.Namespace) -> list[Row]:
    """Measure the panel, waits and the round trip of a cell."""
    with LabProcess(with_aliquot=True) as lab:
        changes = changes_to_pixels(browser, lab, arguments.changes)
        paints = first_paints(browser, lab, arguments.paints)
    with LabProcess(with_aliquot=False) as lab:
        idle = idle_percents(browser, lab, arguments.idle_seconds, arguments.settle_seconds)
    crowd = crowd_rows(browser, arguments.crowd, arguments.scroll_seconds)
    waits = wait_rows(browser, arguments.resizes)
    latency = latency_rows(browser, arguments.requests)
    return [*rows_of(bundle_size(), paints, changes, idle), *crowd, *waits, *latency]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paints", type=int, default=20, help="first paints, each of a page of its own")
    parser.add_argument("--changes", type=int, default=24, help="changes of state, swaps out and back in turn")
    parser.add_argument("--resizes", type=int, default=5, help="rounds of sizes")
    parser.add_argument("--requests", type=int, default=300, help="1+1, of each kernel, in rounds that take turns")
    parser.add_argument("--starts", type=int, default=20, help="starts of Lab, with and without the extension in turn")
    parser.add_argument("--starts-alone", action="store_true", help="measure nothing but those starts")
    parser.add_argument("--idle-seconds", type=float, default=30.0, help="how long nothing changes")
    parser.add_argument("--settle-seconds", type=float, default=15.0, help="from a shown page to the look at it")
    parser.add_argument("--crowd", type=int, default=10_000, help="kernels in the administrator's view")
    parser.add_argument("--scroll-seconds", type=float, default=20.0, help="how long that is scrolled")
    arguments = read_arguments(parser, _SMOKE)
    if not Path(CHROMIUM).exists():
        raise SystemExit(f"A browser at {CHROMIUM} is needed, but there is none. Install the package chromium")
    with a_browser() as browser:
        rows = [] if arguments.starts_alone else panel_rows(browser, arguments)
        rows += start_rows(browser, arguments.starts)
    raise SystemExit(0 if publish(arguments, "lab", "software GPU", rows) else 1)


if __name__ == "__main__":
    main()
