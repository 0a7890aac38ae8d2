"""The sidebar as a part of the page: keyboard, reload, polls while hidden, and notices without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import LabProcess
    from tests.labextension.status_script import StatusScript
else:
    from lab_page import LabPage

pytestmark = pytest.mark.browser


def _eventually(page: Page, claim: Callable[[], bool], what: str) -> None:
    """Wait until a claim about the test's own side holds.

    For the browser's side there are Playwright's waits.
    """
    for _ in range(800):
        if claim():
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never so within 40 s: {what}")


def test_palette_shows_the_panel_and_the_keyboard_opens_the_notebook(
    a_scripted_lab: LabPage, a_plain_lab: LabProcess, a_script: StatusScript
) -> None:
    (a_plain_lab.notebooks / "by-keyboard.ipynb").write_text(
        '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
    )
    a_script.body["kernels"][0]["label"] = "by-keyboard.ipynb"
    a_scripted_lab.run_command("Show GPU Kernels")
    link = a_scripted_lab.panel.get_by_role("button", name="Open by-keyboard.ipynb")
    link.wait_for()
    a_scripted_lab.panel.locator(".jp-AccordionPanel-title", has_text="Kernels").focus()
    a_scripted_lab.page.keyboard.press("Tab")  # into the section, which scrolls by keyboard
    a_scripted_lab.page.keyboard.press("Tab")
    assert link.evaluate("element => element === document.activeElement")
    a_scripted_lab.page.keyboard.press("Enter")
    a_scripted_lab.page.locator("#jp-main-dock-panel").get_by_role("tab", name="by-keyboard.ipynb").wait_for()


@pytest.mark.soak(alone="a long browser test")
def test_place_of_the_panel_survives_a_reload(a_scripted_lab: LabPage) -> None:
    page = a_scripted_lab.page
    a_scripted_lab.show_panel().get_by_text("train.ipynb").wait_for()
    with page.expect_response(lambda r: "/api/workspaces/" in r.url and r.request.method == "PUT"):
        a_scripted_lab.start_command("application:toggle-right-area")
    a_scripted_lab.reload()
    a_scripted_lab.panel.get_by_text("train.ipynb").wait_for()


def test_hidden_panel_asks_rarely(a_plain_lab: LabProcess, a_page: Page, a_script: StatusScript) -> None:
    a_page.clock.install()
    lab = LabPage(a_page).open(a_plain_lab.lab_url)
    lab.show_panel().get_by_text("train.ipynb").wait_for()
    before = a_script.requests
    _eventually(a_page, lambda: a_script.requests >= before + 3, "the shown panel asks again and again")
    lab.tab.click()
    lab.panel.wait_for(state="hidden")
    a_page.wait_for_load_state("networkidle")
    before = a_script.requests
    for _ in range(14):  # a minute, and the tenth by which waits differ
        a_page.clock.fast_forward(5_000)
        a_page.wait_for_timeout(100)  # the browser gives its answers meanwhile
    assert before < a_script.requests <= before + 6, "for news of kernels, about every quarter of a minute"
    before = a_script.requests
    lab.show_panel()
    _eventually(a_page, lambda: a_script.requests > before, "the panel asks again when it is shown again")


def test_ended_kernels_say_why_and_are_put_away_for_good(a_scripted_lab: LabPage, a_script: StatusScript) -> None:
    panel = a_scripted_lab.show_panel()
    panel.get_by_text("train.ipynb").wait_for()
    message = "the kernel used 4.1 GiB of 4 GiB host memory, and was ended for it"
    a_script.body["kernels"] += [
        a_script.an_ended_kernel("k-8", "models/big.ipynb", code="oom", message=message),
        a_script.an_ended_kernel("k-9", "old.ipynb"),
    ]
    ended = panel.get_by_role("list", name="Ended kernels").get_by_role("listitem")
    ended.filter(has_text="big.ipynb").get_by_text(message).wait_for()
    ended.filter(has_text="old.ipynb").get_by_text("the kernel was ended after 60 min idle").wait_for()
    assert panel.get_by_role("list", name="GPU kernels").get_by_role("listitem").count() == 1
    panel.get_by_role("button", name="Dismiss old.ipynb").click()
    ended.filter(has_text="old.ipynb").wait_for(state="detached")
    a_scripted_lab.reload()
    a_scripted_lab.finish_command("aliquot:show-gpu-kernels")  # it may be open again or not
    ended.filter(has_text="big.ipynb").wait_for()
    assert ended.filter(has_text="old.ipynb").count() == 0
    assert a_scripted_lab.errors == []


def test_a_kernel_that_ended_is_told_once_without_the_panel(a_scripted_lab: LabPage, a_script: StatusScript) -> None:
    page = a_scripted_lab.page
    _eventually(page, lambda: a_script.requests > 0, "what is there is seen first")
    a_script.body["kernels"] += [
        a_script.an_ended_kernel("k-9", "night.ipynb"),
        a_script.an_ended_kernel("k-8", "mine.ipynb", code="user", by="ada"),
    ]
    a_script.tell(kernel_id="k-9", state="ended")
    toast = page.locator(".Toastify__toast")
    toast.get_by_text("night.ipynb: the kernel was ended after 60 min idle").wait_for()
    assert toast.filter(has_text="mine.ipynb").count() == 0
    toast.get_by_role("button", name="Show GPU kernels").click()
    a_scripted_lab.panel.get_by_role("list", name="Ended kernels").get_by_text("night.ipynb").wait_for()
    before = a_script.requests
    a_scripted_lab.reload()
    # Lab decides whether the panel is open again; the notices come from the first answer alone.
    _eventually(page, lambda: a_script.requests > before, "the page asks again")
    page.wait_for_load_state("networkidle")
    assert toast.filter(has_text="night.ipynb").count() == 0


def test_an_announced_end_is_told_and_taken_back_by_a_click(a_scripted_lab: LabPage, a_script: StatusScript) -> None:
    page = a_scripted_lab.page
    soon = {
        "at": "2026-01-02T03:04:05.000Z",
        "message": "kernels that are idle for 60 min are ended",
        "can_postpone": True,
    }
    crash = a_script.an_ending(code="crash", message="the kernel was ended by signal 11")
    a_script.body["kernels"] = [
        a_script.a_kernel(gpus=0, label="plain.ipynb", scheduled_termination=soon, last_crash=crash)
    ]
    panel = a_scripted_lab.show_panel()
    item = panel.get_by_role("list", name="GPU kernels").get_by_role("listitem")
    item.get_by_text("kernels that are idle for 60 min are ended").wait_for()
    item.get_by_text("the kernel was ended by signal 11").wait_for()
    item.get_by_text("no GPU").wait_for()
    toast = page.locator(".Toastify__toast", has_text="plain.ipynb will be ended at")
    toast.get_by_role("button", name="Keep Running").click()
    _eventually(page, lambda: a_script.kept == ["k-1"], "the server is asked to keep it")
    a_script.keep_code = 409
    item.get_by_role("button", name="Keep Running").click()
    page.locator(".Toastify__toast", has_text="It is ended for its age").wait_for()
    a_script.body["kernels"] = [a_script.a_kernel()]
    item.get_by_text("train.ipynb").wait_for()
    assert item.get_by_role("button", name="Keep Running").count() == 0
