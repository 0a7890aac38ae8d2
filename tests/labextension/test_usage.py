"""The page of GPU-hours in Lab: a user's own month, and its CSV."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import LabProcess
    from tests.labextension.server_processes import an_empty_notebook
else:
    from lab_page import LabPage
    from server_processes import an_empty_notebook

pytestmark = pytest.mark.browser


def test_a_users_month_is_shown_by_size_and_saved_as_csv(an_aliquot_lab: LabProcess, a_real_lab: LabPage) -> None:
    lab, a_page = a_real_lab, a_real_lab.page
    path = an_empty_notebook(an_aliquot_lab.notebooks, "hours.ipynb", "python3.gpu-0.25")
    lab.open_notebook(path, "python3.gpu-0.25")
    a_page.wait_for_function(_IS_COUNTED, polling=200)
    lab.finish_command("aliquot:show-usage")
    shown = a_page.get_by_role("region", name="GPU-hours").first
    shown.get_by_label("Rows").select_option("size")
    shown.get_by_role("row").filter(has_text="0.25").first.wait_for()
    for theme in lab.in_both_themes():
        assert lab.violations(".aliquot-Admin") == [], theme
    with a_page.expect_download() as download:
        shown.get_by_role("button", name="Download CSV").click()
    assert download.value.suggested_filename.endswith("-by-size.csv")
    rows = list(csv.DictReader(download.value.path().read_text().splitlines()))
    assert "0.25" in {row["size"] for row in rows}
    shown.get_by_label("Month").fill("2001-01")
    shown.get_by_text("No GPU time was counted in this month.").wait_for()
    shown.get_by_label("Month").fill("2199-01")
    shown.get_by_text("This month has not begun.").wait_for()
    shown.get_by_text("Held: size times the time on the GPU or swapped out. Charged: what is held").wait_for()
    assert lab.errors == []


# The gateway looks at the kernels every few seconds.
_IS_COUNTED = """async () => {
    const { baseUrl } = jupyterapp.serviceManager.serverSettings;
    return (await (await fetch(`${baseUrl}aliquot/api/v1/usage`)).json()).total.held > 0;
}"""
