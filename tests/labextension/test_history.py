"""The history page before a real gateway.

A kernel that works shows up in the chart, the table and the CSV.
"""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.labextension.lab_process import LabProcess

from gpu_cells import work
from lab_page import LabPage

pytestmark = pytest.mark.browser

_WORK = work(256, 5)


def test_a_kernel_that_works_is_in_the_history(an_aliquot_lab: LabProcess, a_real_lab: LabPage) -> None:
    lab, a_page = a_real_lab, a_real_lab.page
    cell = {"cell_type": "code", "id": "work", "source": _WORK, "metadata": {}, "outputs": [], "execution_count": None}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (an_aliquot_lab.notebooks / "works.ipynb").write_text(json.dumps(notebook))
    lab.open_notebook("works.ipynb", "python3.gpu-0.25")
    lab.start_command("notebook:run-all-cells")
    a_page.locator(".jp-OutputArea-output", has_text="worked!").wait_for()
    lab.finish_command("aliquot:show-history")
    history = a_page.get_by_role("region", name="GPU history")
    history.get_by_label("Values shown of the kernels").select_option("memory")
    row = history.get_by_role("row").filter(has_text="works.ipynb")
    row.get_by_text("256.0 MiB").last.wait_for()
    chart = history.get_by_role("slider", name="GPU memory of kernels")
    chart.focus()
    chart.press("Home")
    history.get_by_role("slider", name="Utilization of GPU 0").wait_for()
    for theme in lab.in_both_themes():
        assert lab.violations('[aria-label="GPU history"]') == [], theme
    with a_page.expect_download() as download:
        history.get_by_role("button", name="Download CSV").click()
    lines = list(csv.DictReader(download.value.path().read_text().splitlines()))
    assert {line["label"] for line in lines if line["kind"] == "kernel"} >= {"works.ipynb"}
    history.get_by_label("Week").check(force=True)
    row.wait_for()
    a_page.set_viewport_size({"width": 1280, "height": 330})
    box = chart.bounding_box()
    assert box is not None
    assert box["height"] > 200, "a page that is too low for its charts scrolls"
    assert lab.errors == []
