"""The sidebar before a real gateway and the software GPU.

A resize of a running kernel, memory moved out and back.
"""

from __future__ import annotations

import json
import re
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

_HOLD_TWO_GIB = hold(2048)

_USES_LESS = "([bar, bytes]) => Number(bar.getAttribute('aria-valuenow')) < bytes"


def test_a_kernel_is_resized_swapped_out_brought_back_and_shut_down_from_the_sidebar(
    an_aliquot_lab: LabProcess, a_real_lab: LabPage
) -> None:
    lab, a_page = a_real_lab, a_real_lab.page
    path = _a_notebook(an_aliquot_lab)
    panel = lab.show_panel()
    lab.open_notebook(path, "python3.gpu-0.25")
    lab.start_command("notebook:run-all-cells")
    a_page.locator(".jp-OutputArea-output", has_text="held!").wait_for()
    kernel = panel.get_by_role("list", name="GPU kernels").get_by_role("listitem").filter(has_text=path)
    kernel.get_by_text("2.0 of 4.0 GiB used").wait_for()
    panel.get_by_text(re.compile(r"^[2-9]\.\d of 16\.0 GiB used$")).wait_for()
    device = panel.get_by_role("meter", name="Memory of GPU 0")
    resident = float(device.get_attribute("aria-valuenow") or 0)
    kernel.get_by_role("button", name=f"Actions and details of {path}").click()

    kernel.get_by_role("spinbutton", name="GPU share").fill("0.5")
    kernel.get_by_role("status").get_by_text("Changes at once.").wait_for()
    kernel.get_by_role("button", name="Resize").click()
    kernel.get_by_text("2.0 of 8.0 GiB used").wait_for()
    kernel.get_by_text("0.5 GPU", exact=True).first.wait_for()

    kernel.get_by_role("button", name="Swap Out Now", disabled=False).click()
    kernel.get_by_text("2.0 GiB in host memory").wait_for()
    kernel.get_by_text(re.compile("^swapped out, idle")).wait_for()
    panel.get_by_text(re.compile("^2.0 GiB swapped out to the host")).wait_for()
    a_page.wait_for_function(_USES_LESS, arg=[device.element_handle(), resident - (1 << 30)])

    kernel.get_by_role("button", name="Restore").click()
    kernel.get_by_text(re.compile("^on GPU")).wait_for()
    panel.get_by_text("swapped out to the host").wait_for(state="detached")
    a_page.wait_for_function(f"it => !({_USES_LESS})(it)", arg=[device.element_handle(), resident])

    kernel.get_by_role("button", name="Shut Down…").click()
    a_page.get_by_role("dialog").get_by_role("button", name="Shut Down").click()
    kernel.wait_for(state="detached")
    assert lab.errors == []


def _a_notebook(lab: LabProcess) -> str:
    """Return the path of a notebook whose cell holds two GiB."""
    path = f"sidebar-{uuid.uuid4().hex[:8]}.ipynb"
    cell = {"cell_type": "code", "id": "hold", "source": _HOLD_TWO_GIB, "metadata": {}, "outputs": []}
    notebook = {"cells": [{**cell, "execution_count": None}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (lab.notebooks / path).write_text(json.dumps(notebook))
    return path
