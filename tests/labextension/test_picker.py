"""The dialog for a kernel and its size.

By mouse, by keyboard alone, remembered, and refused where the size is not available.
"""

from __future__ import annotations

import json
import re
import uuid
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Route

    from tests.labextension.lab_page import LabPage
    from tests.labextension.server_processes import LabProcess, an_empty_notebook
else:
    from lab_page import LabPage
    from server_processes import an_empty_notebook

pytestmark = pytest.mark.browser

_SHARE_OF_KERNEL = """async () => {
    const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel.id;
    const { baseUrl, token } = jupyterapp.serviceManager.serverSettings;
    const answer = await fetch(`${baseUrl}aliquot/api/v1/status`, { headers: { Authorization: `token ${token}` } });
    return (await answer.json()).kernels.find(one => one.id === kernel)?.gpus;
}"""


_REASONS = {
    "0.333": "0.333 GPU is between two steps of 0.01. Enter 0.33, for example.",
    "0": "0 GPU is too small. Enter 0.01 to 1.",
    "100": "100 GPU is too large. Enter 0.01 to 1.",
    "": "Enter a number from 0.01 to 1.",
}
_IS_SEEN = """() => {
    const line = document.querySelector('.jp-Dialog .aliquot-SizeForm-dry-run');
    const { left, top, height } = line.getBoundingClientRect();
    const isOnTop = document.elementFromPoint(left + 20, top + height / 2) === line;
    return isOnTop && line.innerText.startsWith('Starts at once');
}"""
_NAMES = "name => jupyterapp.shell.currentWidget.model.getMetadata('kernelspec').name === name"


def test_a_size_is_picked_by_keyboard_remembered_and_changed(a_real_lab: LabPage, an_aliquot_lab: LabProcess) -> None:
    page, dialog = a_real_lab.page, _dialog(a_real_lab)
    path = _without_kernel(an_aliquot_lab, "picked")
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


def test_a_click_on_no_gpu_shows_the_sizes_at_once_each_under_its_own_name(
    a_real_lab: LabPage, an_aliquot_lab: LabProcess
) -> None:
    page, dialog = a_real_lab.page, _dialog(a_real_lab)
    path = an_empty_notebook(an_aliquot_lab.notebooks, "plain.ipynb", "python3")
    a_real_lab.open_notebook(path, "python3")
    page.locator(".jp-NotebookPanel-toolbar .aliquot-KernelItem").get_by_text("No GPU").click()
    dialog.get_by_role("radio", name="0.25 GPU, 4 GiB", exact=True).wait_for()
    dialog.get_by_role("radio", name="0.25 GPU, low priority, 4 GiB", exact=True).wait_for()
    titles = dialog.locator(".aliquot-SizeCard-title").all_inner_texts()
    assert len(titles) == len(set(titles))
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert a_real_lab.errors == []


def test_a_size_too_large_is_refused_in_words_and_the_nearest_proposed(
    a_real_lab: LabPage, an_aliquot_lab: LabProcess
) -> None:
    path = an_empty_notebook(an_aliquot_lab.notebooks, f"large-{uuid.uuid4().hex[:8]}.ipynb", "python3.gpu-4")
    dialog = _dialog(a_real_lab)
    _open(a_real_lab, path)
    refusal = dialog.get_by_role("alert")
    refusal.get_by_text("requests 4 GPUs").wait_for()
    assert "this node has 1 GPU (16.0 GiB)" in refusal.inner_text()
    assert dialog.get_by_role("combobox").locator("option").all_inner_texts() == ["Python 3 (ipykernel)", "No Kernel"]
    dialog.get_by_role("radio", name="1 GPU, 16 GiB", checked=True).wait_for()
    assert a_real_lab.violations(".jp-Dialog") == []
    dialog.get_by_role("radio", name="Custom").check()
    dialog.get_by_role("spinbutton", name="GPU share").fill("3")
    dialog.get_by_text("3 GPU is too large. Enter 0.01 to 1.").wait_for()
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
    dialog.get_by_role("status").get_by_text("Starts at once").wait_for()  # this kernel ends first
    a_real_lab.page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert a_real_lab.errors == []


def test_a_number_that_cannot_be_had_is_marked_with_its_reason_and_select_follows_the_field(
    a_real_lab: LabPage, an_aliquot_lab: LabProcess
) -> None:
    dialog = _dialog(a_real_lab)
    _open(a_real_lab, _without_kernel(an_aliquot_lab, "odd"))
    dialog.get_by_role("radio", name="Custom").check()
    share, select = (
        dialog.get_by_role("spinbutton", name="GPU share"),
        dialog.get_by_role("button", name="Select Kernel"),
    )
    status = dialog.get_by_role("status")
    status.get_by_text("Starts at once").wait_for()
    for written, want in _REASONS.items():
        share.fill(written)
        dialog.get_by_role("alert").get_by_text(want, exact=True).wait_for()
        share.press("Tab")
        assert share.input_value() == written, "what is wrong is not put right in silence"
        assert share.get_attribute("aria-invalid") == "true"
        described = share.get_attribute("aria-describedby") or ""
        assert dialog.locator(f'[id="{described}"]').inner_text() == want
        assert select.is_disabled()
        assert not status.get_by_text("Starts at once").is_visible(), "it is said of another number"
    for theme in a_real_lab.in_both_themes():
        assert a_real_lab.violations(".jp-Dialog") == [], theme
    dialog.get_by_role("slider", name="GPU share").press("ArrowRight")
    _enabled(a_real_lab, select)
    dialog.get_by_role("alert").wait_for(state="detached")
    dialog.get_by_role("checkbox", name="Set memory limit separately").check()
    dialog.get_by_role("spinbutton", name="GPU memory").fill("100")
    dialog.get_by_role("alert").get_by_text("100 GiB is too large. Enter 1 to 16.", exact=True).wait_for()
    assert select.is_disabled()
    dialog.get_by_role("radio", name="0.5 GPU, 8 GiB", exact=True).check()  # the notice of the wrong field goes
    _enabled(a_real_lab, select)
    select.click()
    _wait_for_kernel(a_real_lab, "Python 3 (ipykernel) · 0.5 GPU")
    assert a_real_lab.errors == []


def test_each_size_card_says_what_it_would_mean_now_and_follows_the_node(
    a_real_lab: LabPage, an_aliquot_lab: LabProcess
) -> None:
    dialog = _dialog(a_real_lab)
    questions: list[str] = []
    a_real_lab.page.on("request", lambda one: questions.append(one.url) if "/dry-runs?" in one.url else None)
    first = an_empty_notebook(an_aliquot_lab.notebooks, f"first-{uuid.uuid4().hex[:8]}.ipynb", "python3.gpu-0.5")
    _open(a_real_lab, first)
    _wait_for_kernel(a_real_lab, "Python 3 (ipykernel) · 0.5 GPU")
    _open(a_real_lab, _without_kernel(an_aliquot_lab, "next"))
    _says(dialog, "0.25 GPU, 4 GiB", "starts now")
    _says(dialog, "0.5 GPU, 8 GiB", "starts now")
    _says(dialog, "1 GPU, 16 GiB", "queued: next")
    assert len({url.partition("?")[2] for url in questions}) == 1, "one question holds all sizes"
    one = dialog.get_by_role("radio", name="1 GPU, 16 GiB", exact=True)
    described = one.get_attribute("aria-describedby") or ""
    assert dialog.locator(f'[id="{described}"]').inner_text() == "queued: next", (
        "a screen reader hears it with the size"
    )
    for theme in a_real_lab.in_both_themes():
        assert a_real_lab.violations(".jp-Dialog") == [], theme
    an_aliquot_lab.end_kernels()
    _says(dialog, "1 GPU, 16 GiB", "starts now")
    a_real_lab.page.keyboard.press("Escape")
    dialog.wait_for(state="detached")


def test_a_size_says_what_a_user_loses_by_shared_memory_or_that_it_keeps_its_own(
    a_real_lab: LabPage, an_aliquot_lab: LabProcess
) -> None:
    dialog = _dialog(a_real_lab)

    def tell(route: Route) -> None:
        answer = route.fetch()
        told = answer.json()
        for one in told["dry_runs"]:
            is_whole = one["gpus"] == 1
            one["memory_sharing"] = None if is_whole else {"idle_kernels": 2, "busy_kernels": 0, "restore_seconds": 1.2}
            one["keeps_memory"] = is_whole
        route.fulfill(response=answer, json=told)

    a_real_lab.page.route(re.compile(r"/aliquot/api/v1/dry-runs\?"), tell)
    _open(a_real_lab, _without_kernel(an_aliquot_lab, "shared"))
    _says(dialog, "0.25 GPU, 4 GiB", "starts now, shares memory")
    _says(dialog, "1 GPU, 16 GiB", "starts now, keeps its memory")
    a_real_lab.page.keyboard.press("Escape")
    dialog.wait_for(state="detached")


def test_the_cards_are_there_before_the_server_has_said_what_they_mean(
    a_real_lab: LabPage, an_aliquot_lab: LabProcess
) -> None:
    dialog = _dialog(a_real_lab)
    held: list[Route] = []
    a_real_lab.page.route("**/aliquot/api/v1/dry-runs?*", lambda route: held.append(route))
    with a_real_lab.page.expect_request("**/aliquot/api/v1/dry-runs?*"):
        _open(a_real_lab, _without_kernel(an_aliquot_lab, "held"))
    dialog.get_by_role("radio", name="0.25 GPU, 4 GiB", exact=True).check()
    dialog.get_by_role("status").get_by_text("Starts at once").wait_for()
    height = dialog.locator(".aliquot-SizeForm-presets").evaluate("cards => cards.offsetHeight")
    assert dialog.get_by_text("starts now").count() == 0
    for route in held:
        route.continue_()
    a_real_lab.page.unroute("**/aliquot/api/v1/dry-runs?*")
    _says(dialog, "0.25 GPU, 4 GiB", "starts now")
    assert dialog.locator(".aliquot-SizeForm-presets").evaluate("cards => cards.offsetHeight") == height
    page = a_real_lab.page
    page.set_viewport_size({"width": 700, "height": 450})  # as at a zoom of 200 %
    dialog.locator(".jp-Dialog-body").evaluate("body => body.scrollTo(0, 0)")
    assert page.evaluate(_IS_SEEN), "what the choice means is in sight below cards that are scrolled"
    page.set_viewport_size({"width": 1280, "height": 800})
    dialog.get_by_role("button", name="Select Kernel").click()
    _wait_for_kernel(a_real_lab, "Python 3 (ipykernel) · 0.25 GPU")


def test_the_largest_size_is_the_devices_also_where_the_rules_allow_less_than_was_asked(
    a_real_lab: LabPage, an_aliquot_lab: LabProcess
) -> None:
    dialog = _dialog(a_real_lab)
    path = an_empty_notebook(an_aliquot_lab.notebooks, f"nine-{uuid.uuid4().hex[:8]}.ipynb", "python3.gpu-9")
    _open(a_real_lab, path)
    dialog.get_by_role("alert").get_by_text("requests 9 GPUs").wait_for()
    assert "this node has 1 GPU (16.0 GiB)" in dialog.get_by_role("alert").inner_text()
    a_real_lab.page.keyboard.press("Escape")
    dialog.wait_for(state="detached")


def _enabled(lab: LabPage, button: Locator) -> None:
    handle = button.element_handle()
    assert handle is not None
    handle.wait_for_element_state("enabled")


def _says(dialog: Locator, size: str, want: str) -> None:
    """Wait until the card of this size shows this text."""
    card = dialog.locator(".aliquot-SizeCard", has=dialog.page.get_by_role("radio", name=size, exact=True))
    card.get_by_text(want, exact=True).wait_for()


def _dialog(lab: LabPage) -> Locator:
    return lab.page.get_by_role("dialog")


def _without_kernel(lab: LabProcess, name: str) -> str:
    """Write a notebook that names no kernel, and return its path: the dialog opens for it."""
    path = f"{name}-{uuid.uuid4().hex[:8]}.ipynb"
    (lab.notebooks / path).write_text(json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return path


def _open(lab: LabPage, path: str) -> None:
    lab.page.evaluate("path => void jupyterapp.commands.execute('docmanager:open', { path })", path)


def _pick_by_keyboard(lab: LabPage, dialog: Locator) -> None:
    """Pick 0.37 GPU with 7 GiB: the focus begins on the dialog's button, and goes round."""
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
    keys.press("ArrowRight")  # from the 6 GiB of the share's part
    dialog.get_by_role("status").get_by_text("Starts at once, with up to 7 GiB of GPU memory.").wait_for()
    keys.press("Enter")


def _wait_for_kernel(lab: LabPage, name: str) -> None:
    lab.page.locator(".jp-NotebookPanel-toolbar").get_by_role("button", name=name).wait_for()
    lab.page.locator("#jp-main-statusbar").get_by_text(f"{name} | Idle").wait_for()


def _metadata(lab: LabProcess, path: str) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads((lab.notebooks / path).read_text())["metadata"]["kernelspec"]
    return spec
