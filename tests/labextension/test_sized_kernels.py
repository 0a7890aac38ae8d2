"""The whole product in a browser.

Sized kernels are picked in Lab, run on the software GPU, and shown in the panel.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.labextension.gpu_cells import hold
    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import LabProcess
else:
    from gpu_cells import hold
    from lab_page import LabPage

pytestmark = pytest.mark.browser

_HOLD_HALF_A_GIB = hold(512)


@pytest.fixture
def a_notebook(an_aliquot_lab: LabProcess) -> str:
    """Return the path of a notebook whose one cell holds 512 MiB of GPU memory."""
    path = f"holds-{uuid.uuid4().hex[:8]}.ipynb"
    cell = {"cell_type": "code", "id": "hold", "source": _HOLD_HALF_A_GIB, "metadata": {}, "outputs": []}
    notebook = {"cells": [{**cell, "execution_count": None}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (an_aliquot_lab.notebooks / path).write_text(json.dumps(notebook))
    return path


_BROKEN_SIZES = """() => [...document.querySelectorAll('.jp-LauncherCard-label p')].flatMap(label => {
    const size = label.textContent.match(/[0-9.]+ GPU/);
    if (!size) return [];
    const range = document.createRange();
    range.setStart(label.firstChild, size.index);
    range.setEnd(label.firstChild, size.index + size[0].length);
    const lines = new Set([...range.getClientRects()].map(line => line.top));
    return lines.size > 1 ? [label.textContent] : [];
})"""


def test_launcher_offers_the_sizes(a_real_lab: LabPage) -> None:
    page = a_real_lab.page
    page.locator(".jp-LauncherCard", has_text="0.25 GPU").first.wait_for()
    for want in ["0.25 GPU", "0.5 GPU", "1 GPU"]:
        assert page.locator(".jp-LauncherCard", has_text=f"· {want}").count() >= 2  # a notebook's and a console's
    assert page.evaluate(_BROKEN_SIZES) == [], "each size stands on one line"
    page.locator(".jp-LauncherCard", has_text="0.25 GPU").first.click()
    page.locator("#jp-main-statusbar").get_by_text("| Idle").wait_for()
    assert a_real_lab.errors == []


def test_cell_in_a_sized_kernel_moves_the_bar(a_real_lab: LabPage, a_notebook: str) -> None:
    page = a_real_lab.page
    panel = a_real_lab.show_panel()
    panel.get_by_text("Aliquot Software GPU").first.wait_for()
    a_real_lab.open_notebook(a_notebook, "python3.gpu-0.25")
    kernel = panel.get_by_role("list", name="GPU kernels").get_by_role("listitem").filter(has_text=a_notebook)
    kernel.get_by_text("0.25 GPU").wait_for()
    a_real_lab.start_command("notebook:run-all-cells")
    page.locator(".jp-OutputArea-output", has_text="held!").wait_for()
    kernel.get_by_text("0.5 of 4.0 GiB used").wait_for()
    a_real_lab.start_command("kernelmenu:shutdown")
    kernel.wait_for(state="detached")
    assert a_real_lab.errors == []


def test_a_reload_starts_no_kernel_that_was_shut_down_until_a_cell_is_run(a_real_lab: LabPage, a_notebook: str) -> None:
    page, tab = a_real_lab.page, a_real_lab.page.get_by_role("tab", name=a_notebook)
    page.on("dialog", lambda dialog: dialog.accept())  # the page leaves a notebook that is not saved
    panel = a_real_lab.show_panel()
    kernel = panel.get_by_role("list", name="GPU kernels").get_by_role("listitem").filter(has_text=a_notebook)
    a_real_lab.open_notebook(a_notebook, "python3.gpu-0.25")
    kernel.get_by_text("0.25 GPU").wait_for()
    a_real_lab.finish_command("docmanager:save")
    a_real_lab.start_command("kernelmenu:shutdown")
    kernel.wait_for(state="detached")
    page.wait_for_load_state("networkidle")  # the layout is saved, too
    a_real_lab.reload()
    tab.first.wait_for()
    told = page.locator(".Toastify__toast", has_text=f"{a_notebook} has no kernel: the kernel was ended by its owner")
    told.wait_for()
    page.locator("#jp-main-statusbar").get_by_text("No Kernel").wait_for()
    assert kernel.count() == 0
    a_real_lab.start_command("notebook:run-all-cells")
    page.locator(".jp-OutputArea-output", has_text="held!").wait_for()
    kernel.get_by_text("0.25 GPU").wait_for()
    a_real_lab.start_command("kernelmenu:shutdown")
    kernel.wait_for(state="detached")


def test_a_kernel_in_the_panel_leads_to_its_notebook(a_real_lab: LabPage, a_notebook: str) -> None:
    page = a_real_lab.page
    a_real_lab.open_notebook(a_notebook, "python3.gpu-0.25")
    panel = a_real_lab.show_panel()
    a_real_lab.finish_command("docmanager:save")
    a_real_lab.start_command("application:close")
    tab = page.locator("#jp-main-dock-panel").get_by_role("tab", name=a_notebook)
    tab.wait_for(state="detached")
    panel.get_by_role("button", name=f"Open {a_notebook}").click()
    tab.wait_for()
    page.locator("#jp-main-statusbar").get_by_text("| Idle").wait_for()
