"""A program: takes a picture of JupyterLab with the panel and three real kernels that share one GPU.

python tests/labextension/take_screenshot.py docs/images/sidebar.png [--dark]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import CHROMIUM, CHROMIUM_ARGS, REPOSITORY, LabProcess
else:
    from lab_page import LabPage
    from lab_process import CHROMIUM, CHROMIUM_ARGS, REPOSITORY, LabProcess

_WIDTH, _HEIGHT = 1400, 900
_SIDEBAR_WIDTH = 330
_QUICKSTART = REPOSITORY / "examples" / "quickstart.ipynb"
_LONG_CELL = "while time.monotonic()"
# The neighbours of the notebook in the picture: path, share, GiB that they hold.
_NEIGHBOURS = [("train.ipynb", "0.5", 5.5), ("evaluate.ipynb", "0.25", 1.5)]
_NEIGHBOUR_CELL = """\
from cuda.core import Device

device = Device()
device.set_current()
stream = device.create_stream()
held = device.allocate({n_bytes}, stream=stream)
stream.sync()
"""


class ScreenshotError(RuntimeError):
    """Why there is no picture, and what to do."""


def take_screenshot(target: Path, theme: str) -> None:
    """Start JupyterLab, run the notebooks, open the panel, save the picture."""
    settings: dict[str, dict[str, Any]] = {
        "@aliquot/lab:plugin": {"refreshInterval": 0.5},
        "@jupyterlab/apputils-extension:themes": {"theme": theme},
    }
    with LabProcess(with_aliquot=True, settings=settings) as lab, _a_page() as page:
        _write_notebooks(lab.notebooks)
        lab_page = LabPage(page).open(lab.lab_url)
        for path, share, _ in _NEIGHBOURS:
            lab_page.open_notebook(path, f"python3.gpu-{share}")
            lab_page.finish_command("notebook:run-all-cells")
        lab_page.open_notebook(_QUICKSTART.name, "python3.gpu-0.25")
        _run_quickstart_into_its_long_cell(lab_page)
        _arrange(lab_page)
        target.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(target))


def _write_notebooks(folder: Path) -> None:
    shutil.copy(_QUICKSTART, folder)
    for path, _, gib in _NEIGHBOURS:
        source = _NEIGHBOUR_CELL.format(n_bytes=int(gib * (1 << 30)))
        cell = {"cell_type": "code", "id": "hold", "source": source, "metadata": {}, "outputs": []}
        notebook = {"cells": [{**cell, "execution_count": None}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        (folder / path).write_text(json.dumps(notebook))


def _run_quickstart_into_its_long_cell(lab_page: LabPage) -> None:
    """All cells above it have ended when this returns; it itself has begun."""
    page = lab_page.page
    cells = json.loads(_QUICKSTART.read_text())["cells"]
    index = next(i for i, cell in enumerate(cells) if _LONG_CELL in "".join(cell["source"]))
    page.evaluate("index => { jupyterapp.shell.currentWidget.content.activeCellIndex = index; }", index)
    lab_page.finish_command("notebook:run-all-above")
    lab_page.start_command("notebook:run-cell")
    page.locator(".jp-OutputArea-output", has_text="spinning").wait_for()


def _arrange(lab_page: LabPage) -> None:
    """The panel beside the cells that just ran, with live figures in it."""
    page = lab_page.page
    panel = lab_page.show_panel()
    panel.get_by_role("meter", name=f"Memory of {_QUICKSTART.name}").wait_for()
    edge = page.locator("#jp-left-stack").bounding_box()
    if edge is not None:
        x, y = edge["x"] + edge["width"] + 1, edge["y"] + edge["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(_SIDEBAR_WIDTH, y)
        page.mouse.up()
    page.mouse.move(_WIDTH / 2, _HEIGHT - 5)
    for _, _, gib in _NEIGHBOURS:
        panel.get_by_text(f"{gib:.1f} of").first.wait_for()
    panel.get_by_text("resident, busy").first.wait_for()
    panel.get_by_text(re.compile(r"^[1-9]\d+% busy")).first.wait_for()


@contextlib.contextmanager
def _a_page() -> Iterator[Page]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise ScreenshotError("the package playwright is missing; install aliquot[test]") from None
    if not CHROMIUM.exists():
        raise ScreenshotError(f"{CHROMIUM} is missing; install the package chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), headless=True, args=CHROMIUM_ARGS)
        page = browser.new_context(viewport={"width": _WIDTH, "height": _HEIGHT}).new_page()
        page.set_default_timeout(60_000)
        yield page
        browser.close()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Take a picture of JupyterLab with Aliquot's panel.")
    parser.add_argument("target", type=Path, help="the PNG file to write")
    parser.add_argument("--dark", action="store_true", help="in JupyterLab's dark theme")
    options = parser.parse_args(arguments)
    try:
        take_screenshot(options.target, "JupyterLab Dark" if options.dark else "JupyterLab Light")
    except ScreenshotError as error:
        print(f"no picture: {error}", file=sys.stderr)
        return 1
    print(f"wrote {options.target}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
