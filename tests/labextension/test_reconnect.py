"""A Lab page whose server is killed under a running cell: it comes back by itself, with all that the cell printed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from ports import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import LabProcess
else:
    from lab_page import LabPage
    from lab_process import LabProcess

pytestmark = pytest.mark.browser

_LINES = 80
_COUNT = f"""
import time
for number in range({_LINES}):
    print("line", number, flush=True)
    time.sleep(0.1)
"""


@pytest.fixture
def a_mortal_lab() -> Iterator[LabProcess]:
    """JupyterLab with Aliquot; its kernels end with it only when it is asked to end in order."""
    with LabProcess(with_aliquot=True, options=("--Aliquot.keep_kernels=auto",), port=free_port()) as lab:
        yield lab
        lab.end_kernels()


def test_a_page_reconnects_by_itself_and_shows_the_running_cells_whole_output(
    a_mortal_lab: LabProcess, a_page: Page
) -> None:
    cells = [{"cell_type": "code", "id": "count", "source": _COUNT, "metadata": {}, "outputs": []}]
    cells.append({**cells[0], "id": "after", "source": "print('number is', number)"})
    notebook = {"cells": [{**cell, "execution_count": None} for cell in cells]}
    path = a_mortal_lab.notebooks / "count.ipynb"
    path.write_text(json.dumps({**notebook, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    lab = LabPage(a_page).open(a_mortal_lab.lab_url)
    lab.open_notebook(path.name, "python3")
    lab.start_command("notebook:run-all-cells")
    output = a_page.locator(".jp-OutputArea-output")
    output.filter(has_text="line 9").first.wait_for()
    a_mortal_lab.kill_and_start_again()
    output.filter(has_text=f"number is {_LINES - 1}").first.wait_for(timeout=60_000)
    shown = "".join(output.all_inner_texts()).split("number is")[0].split("\n")
    assert [line for line in shown if line] == [f"line {number}" for number in range(_LINES)]
    a_page.locator("#jp-main-statusbar").get_by_text("| Idle").wait_for()
