"""Shared kernels, before scripted answers: the dialog, the list of others' kernels, notices, teams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.labextension.conftest import ScriptedPanel
    from tests.labextension.share_script import ShareScript
else:
    from share_script import ShareScript

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def shares_of_a_page(a_shared_panel: ScriptedPanel) -> ShareScript:
    return ShareScript(a_shared_panel.lab.page)


@pytest.fixture
def shares(shares_of_a_page: ShareScript) -> ShareScript:
    shares_of_a_page.shares, shares_of_a_page.asked, shares_of_a_page.refusal = [], [], None
    return shares_of_a_page


@pytest.fixture
def dialog(a_panel: ScriptedPanel, shares: ShareScript) -> Iterator[Locator]:
    """The dialog of train.ipynb, opened by the button of its actions."""
    folded = a_panel.shown.get_by_role("button", name="Actions and details of train.ipynb")
    folded.click()
    a_panel.shown.get_by_role("button", name="Share…").click()
    shown = a_panel.lab.page.get_by_role("dialog").filter(has_text="Share train.ipynb")
    shown.get_by_role("heading", name="Users and teams with access").wait_for()
    yield shown
    shown.get_by_role("button", name="Close").click()
    shown.wait_for(state="detached")
    folded.click()


def _eventually(panel: ScriptedPanel, claim: Callable[[], bool], what: str) -> None:
    for _ in range(400):
        if claim():
            return
        panel.lab.page.wait_for_timeout(50)
    pytest.fail(f"never so within 20 s: {what}")


def test_a_kernel_is_shared_by_keyboard_and_taken_back(
    a_panel: ScriptedPanel, dialog: Locator, shares: ShareScript
) -> None:
    dialog.get_by_text("Only you and administrators.").wait_for()
    name = dialog.get_by_role("textbox", name="Name of the user")
    _eventually(a_panel, lambda: name.evaluate("field => field === document.activeElement"), "the field has the focus")
    assert dialog.get_by_role("button", name="Share", exact=True).is_disabled(), "nobody is named yet"
    a_panel.lab.page.keyboard.type("bob")
    a_panel.lab.page.keyboard.press("Enter")  # Enter closes Lab's other dialogs
    dialog.get_by_role("status").get_by_text("Shared with bob: read.").wait_for()
    look = dialog.get_by_role("radio", name="a team").evaluate("radio => getComputedStyle(radio).appearance")
    assert look == "auto", "what is chosen is seen: Lab's dialogs draw every field as one for text"
    dialog.get_by_role("radio", name="a team").check()
    dialog.get_by_role("radio", name="write: also run cells").check()
    dialog.get_by_role("textbox", name="Name of the team").fill("vision")
    dialog.get_by_role("button", name="Share", exact=True).click()
    rows = dialog.get_by_role("list", name="Users and teams with access").get_by_role("listitem")
    rows.filter(has_text="team vision").get_by_text("write", exact=True).wait_for()
    dialog.get_by_role("button", name="Stop sharing with bob").click()
    rows.filter(has_text="bob").wait_for(state="detached")
    assert shares.asked == [
        ("PUT", "user bob", {"access": "read"}),
        ("PUT", "team vision", {"access": "write"}),
        ("DELETE", "user bob", None),
    ]
    for theme in a_panel.lab.in_both_themes():
        assert a_panel.lab.violations(".aliquot-ShareDialog .jp-Dialog-content") == [], theme


def test_the_focus_stays_in_the_dialog_after_a_share_and_escape_closes_it(
    a_panel: ScriptedPanel, shares: ShareScript
) -> None:
    page = a_panel.lab.page
    folded = a_panel.shown.get_by_role("button", name="Actions and details of train.ipynb")
    folded.click()
    a_panel.shown.get_by_role("button", name="Share…").click()
    dialog = page.get_by_role("dialog").filter(has_text="Share train.ipynb")
    name = dialog.get_by_role("textbox", name="Name of the user")
    name.fill("bob")
    button = dialog.get_by_role("button", name="Share", exact=True)
    button.click()
    dialog.get_by_role("status").get_by_text("Shared with bob: read.").wait_for()
    _eventually(a_panel, lambda: name.evaluate("field => field === document.activeElement"), "the field has the focus")
    name.fill("eve")
    shares.refusal = (409, "Requested to share a kernel with user 'eve', but this server has one user.")
    button.click()
    dialog.get_by_role("alert").get_by_text("this server has one user").wait_for()
    assert button.evaluate("node => node === document.activeElement"), "after a refusal it is where it was"
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    folded.click()
    a_panel.lab.errors.clear()  # the browser writes each refusal into its console


def test_a_refusal_to_share_is_said_in_the_dialog_and_what_was_typed_stays(
    a_panel: ScriptedPanel, dialog: Locator, shares: ShareScript
) -> None:
    shares.refusal = (400, 'asked to share with "bobb"; there is no such user; write the name as it is known here')
    dialog.get_by_role("textbox", name="Name of the user").fill("bobb")
    dialog.get_by_role("button", name="Share", exact=True).click()
    dialog.get_by_role("alert").get_by_text("there is no such user").wait_for()
    assert dialog.get_by_role("textbox", name="Name of the user").input_value() == "bobb"
    a_panel.lab.errors.clear()  # the browser writes each refusal into its console


def test_a_kernel_of_mine_says_with_whom_it_is_shared(a_panel: ScriptedPanel) -> None:
    bob = {"kind": "user", "name": "bob", "access": "read"}
    a_panel.script.body["kernels"][0].update(access="own", shares=[{**bob, "kind": "team", "name": "vision"}, bob])
    a_panel.shown.get_by_text("shared with bob, team vision").wait_for()


def test_kernels_of_others_have_a_list_of_their_own_with_what_access_allows(a_panel: ScriptedPanel) -> None:
    script = a_panel.script
    theirs = {"owner": "grace", "shares": None}
    script.body["kernels"] += [
        script.a_kernel(id="g-1", label="seen.ipynb", access="read", **theirs),
        script.a_kernel(id="g-2", label="used.ipynb", access="write", **theirs),
    ]
    section = a_panel.shown.get_by_role("region", name="Shared with me")
    rows = section.get_by_role("listitem")
    rows.filter(has_text="seen.ipynb").get_by_text("of grace").wait_for()
    rows.filter(has_text="seen.ipynb").get_by_text("read", exact=True).wait_for()
    rows.filter(has_text="used.ipynb").get_by_text("write", exact=True).wait_for()
    mine = a_panel.shown.get_by_role("list", name="GPU kernels", exact=True).get_by_role("listitem")
    assert mine.count() == 1, "they are not among one's own"
    toasts = a_panel.lab.page.locator(".Toastify__toast")
    toasts.filter(has_text="grace shares seen.ipynb with you, read-only.").wait_for()
    told = toasts.filter(has_text="grace shares used.ipynb with you: you can run cells in it.")
    told.get_by_role("button", name="Open a notebook on it").wait_for()
    offered = {"seen": ["New Notebook on This Kernel", "Watch in Console"]}
    offered["used"] = [*offered["seen"], "Restart…"]
    for name, want in offered.items():
        folded = section.get_by_role("button", name=f"Actions and details of {name}.ipynb")
        folded.click()
        group = section.get_by_role("group", name=f"Actions for {name}.ipynb")
        buttons = group.get_by_role("button")
        buttons.nth(len(want) - 1).wait_for()
        assert buttons.all_inner_texts() == want
    section.get_by_text("No cell can be run in it.").wait_for()
    section.get_by_text("Its size, and its end, are up to grace.").wait_for()
    for theme in a_panel.lab.in_both_themes():
        assert a_panel.lab.violations(".aliquot-Shared") == [], theme
    script.reset()
    toasts.filter(has_text="used.ipynb of grace is not shared with you any more, or has ended.").wait_for()
    section.wait_for(state="detached")


def test_the_limits_of_teams_are_told_beside_ones_own(a_panel: ScriptedPanel) -> None:
    team = {"name": "vision", "gpus": 2, "held_gpus": 1.5, "queued_gpus": 0.25, "left_gpus": 0.25}
    quota = {"gpus": 1, "held_gpus": 0.5, "queued_gpus": 0.0, "left_gpus": 0.5, "teams": [team]}
    a_panel.script.body["user"]["gpu_limit"] = quota
    a_panel.shown.get_by_text("Your GPU limit: 0.5 of 1 GPU held, 0.5 left").wait_for()
    a_panel.shown.get_by_text("Team vision: 1.5 of 2 GPU held, 0.25 left, 0.25 waiting").wait_for()
    assert a_panel.shown.get_by_role("meter", name="Team vision").get_attribute("aria-valuenow") == "1.5"
    quota["gpus"] = None
    a_panel.shown.get_by_text("Your GPU limit").first.wait_for(state="detached")
    assert a_panel.shown.get_by_text("Team vision:").is_visible(), "a team's limit holds without one of one's own"


def test_a_server_that_was_asked_too_much_says_so(a_panel: ScriptedPanel) -> None:
    a_panel.script.code = 429
    a_panel.script.body = {"message": "more than 20 requests in a second; wait 2 s", "reason": None}
    a_panel.shown.get_by_role("alert").get_by_text("more than 20 requests in a second; wait 2 s").wait_for()
    assert a_panel.shown.get_by_text("train.ipynb").is_visible(), "the last figures stay"
    a_panel.script.reset()
    a_panel.shown.get_by_role("alert").wait_for(state="detached")
    a_panel.lab.errors.clear()
