"""A kernel is picked with its size: by mouse, by keyboard alone, remembered, and refused where it cannot be had."""

from __future__ import annotations

import json
import re
import uuid
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Locator, Page

    from tests.labextension.lab_page import LabPage
    from tests.labextension.server_processes import LabProcess, an_empty_notebook
else:
    from lab_page import LabPage
    from server_processes import an_empty_notebook

pytestmark = pytest.mark.browser

_SHARE_OF_KERNEL = """async () => {
    const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel.id;
    const { baseUrl, token } = jupyterapp.serviceManager.serverSettings;
    const answer = await fetch(`${baseUrl}aliquot/api/status`, { headers: { Authorization: `token ${token}` } });
    return (await answer.json()).kernels.find(one => one.id === kernel)?.gpus;
}"""


_NAMES = "name => jupyterapp.shell.currentWidget.model.getMetadata('kernelspec').name === name"


@pytest.fixture
def a_real_lab(an_aliquot_lab: LabProcess, a_page: Page) -> Iterator[LabPage]:
    """Lab in the browser on a server with Aliquot, opened; no other kernels, and its own end with the test."""
    an_aliquot_lab.end_kernels()
    yield LabPage(a_page).open(an_aliquot_lab.lab_url)
    an_aliquot_lab.end_kernels()


def test_a_size_is_picked_by_keyboard_remembered_and_changed(a_real_lab: LabPage, an_aliquot_lab: LabProcess) -> None:
    page, dialog = a_real_lab.page, _dialog(a_real_lab)
    path = f"picked-{uuid.uuid4().hex[:8]}.ipynb"
    (an_aliquot_lab.notebooks / path).write_text(
        json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    _open(a_real_lab, path)
    _pick_by_keyboard(a_real_lab, dialog)
    _wait_for_kernel(a_real_lab, "Python 3 (ipykernel) · 0.37 GPU · 7 GiB")
    page.evaluate("() => jupyterapp.shell.currentWidget.context.save().then(() => null)")
    want = {"name": "python3.gpu-0.37-7g", "display_name": "Python 3 (ipykernel) · 0.37 GPU · 7 GiB"}
    assert {**_metadata(an_aliquot_lab, path), **want} == _metadata(an_aliquot_lab, path)
    assert page.locator(".jp-LauncherCard", has_text="0.37").count() == 0

    an_aliquot_lab.end_kernels()
    a_real_lab.open(an_aliquot_lab.lab_url)
    _open(a_real_lab, path)
    _wait_for_kernel(a_real_lab, "Python 3 (ipykernel) · 0.37 GPU · 7 GiB")

    a_real_lab.start_command("notebook:change-kernel")
    dialog.get_by_role("radio", name="Custom", checked=True).wait_for()
    dialog.get_by_role("radio", name="0.25 GPU, 4 GiB", exact=True).check()
    dialog.get_by_role("status").get_by_text("Changes at once").wait_for()
    dialog.get_by_role("button", name="Select Kernel").click()
    dialog.wait_for(state="detached")
    page.wait_for_function(f"async () => (await ({_SHARE_OF_KERNEL})()) === 0.25")
    page.wait_for_function(_NAMES, arg="python3.gpu-0.25")
    assert a_real_lab.errors == []


def test_a_size_too_large_is_refused_in_words_and_the_nearest_proposed(
    a_real_lab: LabPage, an_aliquot_lab: LabProcess
) -> None:
    path = an_empty_notebook(an_aliquot_lab.notebooks, f"large-{uuid.uuid4().hex[:8]}.ipynb", "python3.gpu-4")
    dialog = _dialog(a_real_lab)
    _open(a_real_lab, path)
    refusal = dialog.get_by_role("alert")
    refusal.get_by_text("asks for 4 GPUs").wait_for()
    assert "the largest is 1 GPU" in refusal.inner_text()
    assert dialog.get_by_role("combobox").locator("option").all_inner_texts() == ["Python 3 (ipykernel)", "No Kernel"]
    dialog.get_by_role("radio", name="1 GPU, 16 GiB", checked=True).wait_for()
    assert a_real_lab.violations(".jp-Dialog") == []
    dialog.get_by_role("radio", name="Custom").check()
    dialog.get_by_role("spinbutton", name="GPU share").fill("3")
    dialog.get_by_role("status").get_by_text(re.compile("Never fits")).wait_for()
    assert dialog.get_by_role("button", name="Select Kernel").is_disabled()
    assert a_real_lab.violations(".jp-Dialog") == []
    assert dialog.get_by_role("slider", name="GPU share").get_attribute("max") == "1", "there is one device"
    dialog.get_by_role("radio", name="No GPU").check()
    dialog.get_by_role("button", name="Select Kernel").click()
    _wait_for_kernel(a_real_lab, "Python 3 (ipykernel)")

    a_real_lab.start_command("notebook:change-kernel")
    dialog.get_by_role("button", name="Choose a Size").click()
    dialog.get_by_role("radio", name="1 GPU, 16 GiB").check()
    dialog.get_by_role("status").get_by_text("Starts at once").wait_for()
    dialog.get_by_role("button", name="Select Kernel").click()
    _wait_for_kernel(a_real_lab, "Python 3 (ipykernel) · 1 GPU")

    a_real_lab.start_command("notebook:change-kernel")
    dialog.get_by_role("combobox").select_option(label="Python 3 (ipykernel)")
    dialog.get_by_role("radio", name="0.5 GPU, 8 GiB", exact=True).check()
    dialog.get_by_role("status").get_by_text("Starts at once").wait_for()  # for this one ends
    a_real_lab.page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert a_real_lab.errors == []


def _dialog(lab: LabPage) -> Locator:
    return lab.page.get_by_role("dialog")


def _open(lab: LabPage, path: str) -> None:
    lab.page.evaluate("path => void jupyterapp.commands.execute('docmanager:open', { path })", path)


def _pick_by_keyboard(lab: LabPage, dialog: Locator) -> None:
    """0.37 GPU with 7 GiB: the focus begins on the dialog's button, and goes round."""
    keys = lab.page.keyboard
    dialog.get_by_role("radio", name="No GPU").wait_for()
    lab.page.wait_for_function("() => document.activeElement?.closest('.jp-Dialog-button')")
    keys.press("Tab")
    keys.press("Tab")
    keys.press("ArrowUp")  # from the first to the last
    dialog.get_by_role("slider", name="GPU share").wait_for()
    keys.press("Tab")
    keys.press("Tab")
    keys.type("0.37")
    keys.press("Tab")
    keys.press("Space")
    keys.press("Tab")
    keys.press("ArrowRight")  # from the 6 GiB that hold the share's part
    dialog.get_by_role("status").get_by_text("Starts at once, with up to 7 GiB of GPU memory.").wait_for()
    keys.press("Enter")


def _wait_for_kernel(lab: LabPage, name: str) -> None:
    lab.page.locator(".jp-NotebookPanel-toolbar").get_by_role("button", name=name).wait_for()
    lab.page.locator("#jp-main-statusbar").get_by_text(f"{name} | Idle").wait_for()


def _metadata(lab: LabProcess, path: str) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads((lab.notebooks / path).read_text())["metadata"]["kernelspec"]
    return spec
