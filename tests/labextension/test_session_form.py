"""CPUs, memory and folders in the dialog of kernels: chosen, asked for by name, and corrected."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import LabProcess
    from tests.labextension.server_processes import an_empty_notebook
else:
    from lab_page import LabPage
    from lab_process import LabProcess
    from server_processes import an_empty_notebook

pytestmark = pytest.mark.browser

_IMAGE = "registry.example/open:1"


@pytest.fixture(scope="module")
def a_lab_with_bounds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabProcess]:
    """A JupyterLab with an image, two shared folders, and bounds of CPUs and memory. It needs no engine."""
    host = Path(os.path.realpath(tmp_path_factory.mktemp("host")))
    folders = []
    for name in ("sets", "more"):
        (host / name).mkdir()
        folders.append({"name": name, "source": f"{host}/{name}", "target": f"/data/{name}", "users": ["*"]})
    bounds = {"0.25": {"cpus": 0.5, "memory": "1GiB", "most_cpus": 1, "most_memory": "2GiB"}}
    config = host / "lab.py"
    config.write_text(
        f"c.ImageCatalogue.images = [{{'name': 'open', 'image': {_IMAGE!r}, 'display_name': 'Open'}}]\n"
        f"c.SharedFolders.roots = [{str(host)!r}]\nc.SharedFolders.folders = {folders!r}\n"
        f"c.HostLimits.sizes = {bounds!r}\n"
    )
    with LabProcess(with_aliquot=True, options=(f"--config={config}",)) as lab:
        yield lab


def test_cpus_memory_and_folders_are_chosen_and_are_part_of_the_kernels_name(
    a_lab_with_bounds: LabProcess, a_page: Page
) -> None:
    lab = LabPage(a_page).open(a_lab_with_bounds.lab_url)
    (a_lab_with_bounds.notebooks / "new.ipynb").write_text(
        json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    lab.start_command("docmanager:open", path="new.ipynb")
    dialog = a_page.get_by_role("dialog")
    dialog.get_by_role("radio", name="0.25 GPU, 4 GiB", exact=True).check()
    dialog.get_by_role("combobox").select_option(label="Open")
    dialog.get_by_text(f"Image: {_IMAGE}").wait_for()
    dialog.get_by_label("Set CPUs").check()
    dialog.get_by_role("spinbutton", name="CPUs").fill("1")
    dialog.get_by_label("Set memory (RAM)").check()
    ram = dialog.get_by_role("spinbutton", name="Memory (RAM)")
    ram.fill("3")
    dialog.get_by_text("3 GiB is too large. Enter 1 to 2.").wait_for()
    ram.fill("2")
    dialog.get_by_label("Choose shared folders").check()
    dialog.get_by_label("more", exact=True).uncheck()
    for theme in lab.in_both_themes():
        assert lab.violations(".jp-Dialog") == [], theme
    dialog.get_by_role("status").get_by_text("Starts at once").wait_for()
    with a_page.expect_request(lambda one: "/api/sessions" in one.url and one.method in ("POST", "PATCH")) as asked:
        dialog.get_by_role("button", name="Select Kernel").press("Enter")
    assert "open.gpu-0.25-1cpu-2ram.with-sets" in (asked.value.post_data or "")


def test_a_choice_that_a_notebook_remembers_and_that_is_not_to_be_had_is_corrected_in_words(
    a_lab_with_bounds: LabProcess, a_page: Page
) -> None:
    path = an_empty_notebook(a_lab_with_bounds.notebooks, "stale.ipynb", "open.gpu-0.25-64cpu.with-gone")
    lab = LabPage(a_page).open(a_lab_with_bounds.lab_url)
    lab.start_command("docmanager:open", path=path)
    dialog = a_page.get_by_role("dialog")
    refusal = dialog.get_by_role("alert")
    refusal.get_by_text("Requested 64 CPUs, but a kernel of this size may have 0.5 to 1 CPUs here").wait_for()
    assert "The nearest available size is selected." in refusal.inner_text()
    dialog.get_by_role("radio", name="0.25 GPU, 4 GiB", checked=True).wait_for()
    assert dialog.get_by_role("spinbutton", name="CPUs").input_value() == "1"
    assert dialog.get_by_label("sets", exact=True).is_checked() is False
    assert lab.errors == []
