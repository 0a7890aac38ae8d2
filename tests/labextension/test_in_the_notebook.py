"""A notebook and its kernel's GPU in a browser.

The line in toolbar and status bar, its window, and cells that wait.
"""

from __future__ import annotations

import json
import re
import urllib.request
import uuid
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from tests.labextension.gpu_cells import hold
    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import LabProcess
else:
    from gpu_cells import hold
    from lab_page import LabPage

pytestmark = pytest.mark.browser

_HOLD_HALF_A_GIB = hold(512)
_OPEN = "([path, name]) => jupyterapp.commands.execute('docmanager:open', {path, kernel: {name}}).then(() => null)"


def _a_notebook(lab: LabProcess, *sources: str) -> str:
    path = f"in-{uuid.uuid4().hex[:8]}.ipynb"
    empty = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    cells = [{**empty, "id": f"cell-{n}", "source": source} for n, source in enumerate(sources)]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (lab.notebooks / path).write_text(json.dumps(notebook))
    return path


def _line(page: Page) -> Locator:
    return page.locator(".jp-NotebookPanel-toolbar .aliquot-KernelItem")


def _asked(lab: LabProcess, path: str, **request: Any) -> bytes:
    headers = {"Authorization": f"token {lab.token}"}
    with urllib.request.urlopen(urllib.request.Request(f"{lab.url}{path}", headers=headers, **request)) as answer:
        return bytes(answer.read())


def _start_kernel(lab: LabProcess, name: str) -> str:
    return str(json.loads(_asked(lab, "api/kernels", data=json.dumps({"name": name}).encode()))["id"])


def _is_idle(lab: LabProcess, path: str) -> bool:
    kernels = json.loads(_asked(lab, "aliquot/api/v1/status"))["kernels"]
    (mine,) = [kernel for kernel in kernels if kernel["label"] == path]
    return mine["idle_since"] is not None


def _end_kernel(lab: LabProcess, kernel_id: str) -> None:
    _asked(lab, f"api/kernels/{kernel_id}", method="DELETE")


def test_a_kernel_is_seen_swapped_and_woken_from_its_notebook(an_aliquot_lab: LabProcess, a_real_lab: LabPage) -> None:
    page = a_real_lab.page
    path = _a_notebook(an_aliquot_lab, _HOLD_HALF_A_GIB, "print('next')")
    a_real_lab.open_notebook(path, "python3.gpu-0.25")
    line = _line(page)
    a_real_lab.start_command("notebook:run-cell-and-select-next")
    line.get_by_text("0.25 GPU · 0.5 / 4 GiB · on GPU").wait_for()
    page.locator("#jp-main-statusbar").get_by_role("button", name="0.25 GPU · 0.5 / 4 GiB · on GPU").wait_for()
    line.locator("jp-button").focus()
    page.keyboard.press("Enter")
    window = page.get_by_role("dialog", name=f"GPU of {path}")
    window.get_by_role("meter", name=f"Memory of {path}").wait_for()
    page.wait_for_function("() => document.activeElement.closest('.aliquot-Popover') !== null")
    while not _is_idle(an_aliquot_lab, path):  # a busy kernel is not swapped out
        page.wait_for_timeout(200)
    window.get_by_role("button", name="Swap Out Now").click()
    line.get_by_text("· swapped out").wait_for()
    window.locator(".aliquot-mod-mine-swapped").wait_for()
    page.keyboard.press("Escape")
    window.wait_for(state="detached")
    page.wait_for_function("() => document.activeElement.closest('.aliquot-KernelItem') !== null")
    with page.expect_response(re.compile(r"/aliquot/api/v1/kernels/[^/]+/prefetch")) as hint:
        page.locator(".jp-CodeCell .cm-content").nth(1).click()
    assert hint.value.ok
    line.get_by_text("· on GPU").wait_for()
    assert a_real_lab.errors == []


def test_a_cell_that_finds_no_device_in_a_kernel_without_a_size_is_told_to_choose_one(
    an_aliquot_lab: LabProcess, a_real_lab: LabPage
) -> None:
    page = a_real_lab.page
    path = _a_notebook(an_aliquot_lab, "raise RuntimeError('No CUDA GPUs are available')")
    a_real_lab.open_notebook(path, "python3")
    _line(page).get_by_text("No GPU").wait_for()
    a_real_lab.start_command("notebook:run-cell")
    toast = page.locator(
        ".Toastify__toast", has_text=f"The kernel of {path} has no GPU: it was started without a size."
    )
    toast.get_by_role("button", name="Choose a Size").click()
    page.get_by_role("dialog").get_by_role("radio", name=re.compile("^0.25 GPU")).first.wait_for()
    page.keyboard.press("Escape")
    assert a_real_lab.errors == []


def test_a_cell_of_a_kernel_in_the_queue_says_for_what_it_waits(
    an_aliquot_lab: LabProcess, a_real_lab: LabPage
) -> None:
    page = a_real_lab.page
    neighbour = _start_kernel(an_aliquot_lab, "python3.gpu-1")
    path = _a_notebook(an_aliquot_lab, "print('it', 'ran')", "print('this', 'too')")
    page.evaluate(_OPEN, [path, "python3.gpu-0.5"])
    _line(page).get_by_text("0.5 GPU · queued: next").wait_for()
    a_real_lab.start_command("notebook:run-all-cells")
    badges = page.locator(".jp-CodeCell .aliquot-CellBadge")
    badges.get_by_text("waits for a GPU: next in the queue").first.wait_for()
    badges.get_by_text("none is free").first.wait_for()
    badges.nth(1).wait_for(state="attached")  # hidden while the cell is queued behind another
    assert badges.count() == 2
    page.locator(".jp-NotebookPanel").get_by_role("status").get_by_text("The cell waits for a GPU").wait_for()
    _end_kernel(an_aliquot_lab, neighbour)
    page.locator(".jp-OutputArea-output", has_text="this too").wait_for()
    badges.first.wait_for(state="detached")
    assert badges.count() == 0
    assert a_real_lab.errors == []
