"""The sidebar's requests about a kernel, before scripted answers.

The request, its refusal, and actions that are not available.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.labextension.conftest import ScriptedPanel

pytestmark = pytest.mark.browser
GIB = 1 << 30
_SIZE = {"gpus": 0.5, "requested_memory_bytes": None, "priority": "normal", "since": "2026-01-01T00:00:00Z"}


@pytest.fixture
def actions(a_panel: ScriptedPanel) -> Iterator[Locator]:
    """Return the actions of train.ipynb, unfolded."""
    folded = a_panel.shown.get_by_role("button", name="Actions and details of train.ipynb")
    folded.click()
    group = a_panel.shown.get_by_role("group", name="Actions for train.ipynb")
    group.wait_for()
    yield group
    a_panel.script.reset()
    folded.click()
    group.wait_for(state="detached")


def _eventually(panel: ScriptedPanel, claim: Callable[[], bool], what: str) -> None:
    for _ in range(400):
        if claim():
            return
        panel.lab.page.wait_for_timeout(50)
    pytest.fail(f"never so within 20 s: {what}")


def test_a_resize_is_looked_at_and_asked_for(a_panel: ScriptedPanel, actions: Locator) -> None:
    script = a_panel.script
    actions.get_by_text("Changes without a restart.").wait_for()
    assert actions.get_by_role("button", name="Resize").is_disabled()
    script.dry_run = {"outcome": "queued", "position": 2, "message": "queued, 1 ahead"}
    actions.get_by_role("spinbutton", name="GPU share").fill("0.5")
    actions.get_by_role("status").get_by_text("Queued, 1 ahead.").wait_for()
    asked = parse_qs(script.asked_dry_runs[-1])
    assert asked == {"gpus": ["0.5"], "memory": ["null"], "priority": ["normal"], "kernel": ["k-1"]}
    assert actions.get_by_role("slider", name="GPU share").get_attribute("aria-valuetext") == "0.5 GPU"
    slider = actions.get_by_role("slider", name="GPU share")
    slider.press("ArrowRight")
    actions.get_by_role("checkbox", name="Set memory limit separately").check()
    actions.get_by_role("spinbutton", name="Memory limit").fill("6")
    actions.get_by_role("group", name="Priority").get_by_role("radio", name="low").check()
    actions.get_by_role("button", name="Resize").click()
    want = {"gpus": 0.51, "memory": 6 * GIB, "priority": "low"}
    _eventually(a_panel, lambda: script.asked == [("PATCH", "", want)], "the server is asked for what changes")


def test_a_size_below_what_is_used_says_what_will_fail(a_panel: ScriptedPanel, actions: Locator) -> None:
    a_panel.script.dry_run = {"outcome": "starts", "message": "It changes at once.", "memory_limit_bytes": GIB // 2}
    actions.get_by_role("spinbutton", name="GPU share").fill("0.03")
    want = "Changes at once. The kernel uses 1.0 GiB: new allocations fail until it uses less than 512.0 MiB."
    actions.get_by_role("status").get_by_text(want).wait_for()


def test_a_number_between_two_steps_is_told_so_below_the_field(a_panel: ScriptedPanel, actions: Locator) -> None:
    share = actions.get_by_role("spinbutton", name="GPU share")
    share.fill("0.333")
    actions.get_by_role("alert").get_by_text("0.333 GPU is between two steps of 0.01. Enter 0.33").wait_for()
    assert actions.get_by_role("button", name="Resize").is_disabled(), "nothing that can be had is asked for yet"
    share.fill("0.33")
    actions.get_by_role("alert").wait_for(state="detached")
    assert actions.get_by_role("button", name="Resize").is_enabled()


def test_a_refusal_is_said_beside_the_button(a_panel: ScriptedPanel, actions: Locator) -> None:
    a_panel.script.refusal = (409, "asked 0.9 GPU; 0.5 of GPU 0 is promised to others; ask for 0.5 or less")
    actions.get_by_role("spinbutton", name="GPU share").fill("0.9")
    actions.get_by_role("button", name="Resize").click()
    actions.get_by_role("alert").get_by_text("ask for 0.5 or less").wait_for()
    assert actions.get_by_role("spinbutton", name="GPU share").input_value() == "0.9", "what was wanted stays"
    a_panel.script.refusal = (503, "the node agent does not answer")
    actions.get_by_role("button", name="Swap Out Now").click()
    actions.get_by_role("alert").get_by_text("the node agent does not answer").wait_for()
    actions.get_by_role("button", name="Reset").click()
    a_panel.lab.errors.clear()  # the browser writes each refusal into its console


def test_a_change_that_waits_is_given_up(a_panel: ScriptedPanel, actions: Locator) -> None:
    waiting = {"state": "queued", "reason": "Needs 0.25 GPU more; none is free on gpu0", "position": 2, **_SIZE}
    a_panel.script.body["kernels"][0]["resize"] = waiting
    actions.get_by_text("Resize to 0.5 GPU queued: 1 ahead.").wait_for()
    actions.get_by_role("button", name="Cancel Resize").click()
    _eventually(a_panel, lambda: a_panel.script.asked == [("DELETE", "resize", None)], "the request is withdrawn")


def test_memory_is_moved_out_and_back(a_panel: ScriptedPanel, actions: Locator) -> None:
    script = a_panel.script
    actions.get_by_role("button", name="Swap Out Now").click()
    _eventually(a_panel, lambda: script.asked == [("POST", "swap-out", None)], "it is asked to leave")
    script.body["kernels"][0].update(state="swapped_out")
    actions.get_by_role("button", name="Restore").click()
    _eventually(a_panel, lambda: script.asked[1:] == [("POST", "restore", None)], "it is asked to come back")


def test_what_cannot_be_asked_says_why_to_eyes_and_ears(a_panel: ScriptedPanel, actions: Locator) -> None:
    kernel = a_panel.script.body["kernels"][0]
    kernel.update(execution_state="busy", idle_since=None)
    why = "It is busy: it can be swapped out when nothing runs in it."
    out = actions.get_by_role("button", name="Swap Out Now", description=why, disabled=True)
    out.wait_for()
    assert out.get_attribute("title") == why
    out.focus()
    out.press("Enter")
    kernel.update(state="queued", queue_position=1, devices=[])
    actions.get_by_role("button", name="Restart…", disabled=True).wait_for()
    actions.get_by_text("This kernel cannot be resized now: It is queued and has not started.").wait_for()
    assert actions.get_by_role("spinbutton").count() == 0
    assert actions.get_by_role("button", name="Shut Down…").is_enabled(), "but gives it up"
    assert a_panel.script.asked == []


def test_restart_and_shut_down_are_confirmed_first(a_panel: ScriptedPanel, actions: Locator) -> None:
    page = a_panel.lab.page
    for button, title in (("Restart…", "Restart Kernel?"), ("Shut Down…", "Shut Down Kernel?")):
        actions.get_by_role("button", name=button).click()
        dialog = page.get_by_role("dialog").filter(has_text=title)
        dialog.get_by_text("train.ipynb").wait_for()
        dialog.get_by_role("button", name="Cancel").click()
        dialog.wait_for(state="detached")
    assert a_panel.script.asked == []


def test_a_kernel_that_waits_has_no_variables_to_lose_when_it_is_given_up(
    a_panel: ScriptedPanel, actions: Locator
) -> None:
    a_panel.script.body["kernels"][0].update(state="queued", queue_position=1, queue_length=1, devices=[])
    actions.get_by_role("button", name="Restart…", disabled=True).wait_for()
    actions.get_by_role("button", name="Shut Down…").click()
    dialog = a_panel.lab.page.get_by_role("dialog")
    dialog.get_by_text("train.ipynb is queued for a GPU and has not started. It loses its place").wait_for()
    assert "variables" not in dialog.inner_text()
    dialog.get_by_role("button", name="Cancel").click()
    dialog.wait_for(state="detached")
