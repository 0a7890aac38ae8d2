"""A notebook and its kernel's GPU in a browser: the line in toolbar and status bar, its window, cells that wait."""

from __future__ import annotations

import json
import re
import urllib.request
import uuid
from collections.abc import Iterator
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


@pytest.fixture
def an_empty_lab(an_aliquot_lab: LabProcess) -> Iterator[LabProcess]:
    """No kernel holds a part of the GPU when a test begins, nor after it."""
    an_aliquot_lab.end_kernels()
    yield an_aliquot_lab
    an_aliquot_lab.end_kernels()


@pytest.fixture
def a_real_lab(an_empty_lab: LabProcess, a_page: Page) -> LabPage:
    return LabPage(a_page).open(an_empty_lab.lab_url)


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


def _end_kernel(lab: LabProcess, kernel_id: str) -> None:
    _asked(lab, f"api/kernels/{kernel_id}", method="DELETE")


def test_a_kernel_is_seen_swapped_and_woken_from_its_notebook(an_empty_lab: LabProcess, a_real_lab: LabPage) -> None:
    page = a_real_lab.page
    path = _a_notebook(an_empty_lab, _HOLD_HALF_A_GIB, "print('next')")
    a_real_lab.open_notebook(path, "python3.gpu-0.25")
    line = _line(page)
    a_real_lab.start_command("notebook:run-cell-and-select-next")
    line.get_by_text("0.25 GPU · 0.5 / 4 GiB · resident").wait_for()
    page.locator("#jp-main-statusbar").get_by_role("button", name="0.25 GPU · 0.5 / 4 GiB · resident").wait_for()
    line.locator("jp-button").focus()
    page.keyboard.press("Enter")
    window = page.get_by_role("dialog", name=f"GPU of {path}")
    window.get_by_role("meter", name=f"Memory of {path}").wait_for()
    page.wait_for_function("() => document.activeElement.closest('.aliquot-Popover') !== null")
    window.get_by_role("button", name="Swap Out Now").click()
    line.get_by_text("· swapped").wait_for()
    page.keyboard.press("Escape")
    window.wait_for(state="detached")
    page.wait_for_function("() => document.activeElement.closest('.aliquot-KernelItem') !== null")
    with page.expect_response(re.compile(r"/aliquot/api/kernels/[^/]+/hint")) as hint:
        page.locator(".jp-CodeCell .cm-content").nth(1).click()
    assert hint.value.ok
    line.get_by_text("· resident").wait_for()
    assert a_real_lab.errors == []


def test_a_cell_of_a_kernel_in_the_queue_says_for_what_it_waits(an_empty_lab: LabProcess, a_real_lab: LabPage) -> None:
    page = a_real_lab.page
    neighbour = _start_kernel(an_empty_lab, "python3.gpu-1")
    path = _a_notebook(an_empty_lab, "print('it', 'ran')", "print('this', 'too')")
    page.evaluate(_OPEN, [path, "python3.gpu-0.5"])
    _line(page).get_by_text("0.5 GPU · waits: next").wait_for()
    a_real_lab.start_command("notebook:run-all-cells")
    badges = page.locator(".jp-CodeCell .aliquot-CellBadge")
    badges.get_by_text("waits for a GPU: next in the queue").first.wait_for()
    badges.get_by_text("0 free on gpu0").first.wait_for()
    badges.nth(1).wait_for(state="attached")  # hidden while the cell is queued behind another
    assert badges.count() == 2
    page.locator(".jp-NotebookPanel").get_by_role("status").get_by_text("The cell waits for a GPU").wait_for()
    _end_kernel(an_empty_lab, neighbour)
    page.locator(".jp-OutputArea-output", has_text="this too").wait_for()
    badges.first.wait_for(state="detached")
    assert badges.count() == 0
    assert a_real_lab.errors == []
