"""Notebook 7 with our bundle, in a real browser: its view of a kernel, and the choice of a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.labextension.lab_page import NotebookPage
    from tests.labextension.server_processes import NotebookProcess, an_empty_notebook
else:
    from lab_page import NotebookPage
    from server_processes import an_empty_notebook

pytestmark = pytest.mark.browser


def test_a_notebook_gets_the_size_that_its_metadata_names_and_another_that_is_picked(
    a_notebook_server: NotebookProcess, a_page: Page
) -> None:
    path = an_empty_notebook(a_notebook_server.notebooks, "sized.ipynb", "python3.gpu-0.25", "print('it', 'ran')")
    notebook = NotebookPage(a_page)
    notebook.open(a_notebook_server.notebook_url(path))
    notebook.wait_until_attached(path)
    notebook.start_command("notebook:run-all-cells")
    a_page.locator(".jp-OutputArea-output", has_text="it ran").wait_for()
    a_page.locator(".jp-NotebookPanel-toolbar .aliquot-KernelItem").get_by_text("0.25 GPU · 0 / 4 GiB").wait_for()

    a_page.locator(".aliquot-KernelItem jp-button").first.click()
    a_page.get_by_role("dialog", name="GPU of").get_by_role("button", name="Swap Out").wait_for()
    for theme in notebook.in_both_themes():
        assert notebook.violations(".aliquot-KernelItem") == [], theme
        assert notebook.violations(".aliquot-Popover") == [], theme
    a_page.get_by_role("dialog", name="GPU of").get_by_role("button", name="Show all GPU kernels").click()
    a_page.get_by_role("list", name="GPU kernels").get_by_text(path).wait_for()
    assert a_page.get_by_role("dialog", name="GPU of").count() == 0, "it would stand where its button is no more"

    notebook.start_command("notebook:change-kernel")
    dialog = a_page.locator(".jp-Dialog")
    dialog.get_by_role("combobox").select_option(label="Python 3 (ipykernel)")
    dialog.get_by_role("radio", name="0.5 GPU, 8 GiB").check()
    dialog.locator(".jp-mod-accept").click()
    a_page.locator(".aliquot-KernelItem").get_by_text("0.5 GPU · 0 / 8 GiB").wait_for()
    assert notebook.errors == []


def test_a_kernel_is_picked_with_its_size(a_notebook_server: NotebookProcess, a_page: Page) -> None:
    path = an_empty_notebook(a_notebook_server.notebooks, "large.ipynb", "python3.gpu-4")
    notebook = NotebookPage(a_page)
    notebook.open(a_notebook_server.notebook_url(path))
    dialog = a_page.get_by_role("dialog")
    dialog.get_by_role("alert").get_by_text("requests 4 GPUs").wait_for()
    dialog.get_by_role("radio", name="Custom").check()
    dialog.get_by_role("spinbutton", name="GPU share").fill("0.2")
    dialog.get_by_role("status").get_by_text("Starts at once").wait_for()
    a_page.keyboard.press("Enter")
    notebook.wait_until_attached(path)
    a_page.locator(".jp-NotebookPanel-toolbar").get_by_role("button", name="Python 3 (ipykernel) · 0.2 GPU").wait_for()
    assert notebook.errors == []
