"""The page of shared folders: alice shares with bob, who accepts, and an administrator ends it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import LabProcess
    from tests.labextension.server_processes import GatewayWithPages
else:
    from lab_page import LabPage
    from server_processes import GatewayWithPages

pytestmark = pytest.mark.browser

_COMMAND = "aliquot:show-shared-folders"
# A click on its tab would hide it where Lab has restored it.
_SHOW_PANEL = "() => jupyterapp.restored.then(() => jupyterapp.shell.activateById('aliquot-gpu-kernels'))"
# In ms: a page whose panel is hidden reads the status once a minute.
_BEFORE_THE_NEXT_POLL = 30_000
_CONFIG = """
c.SharedFolders.roots = [{homes!r}]
c.SharedFolders.home = {homes!r} + "/{{user}}"
c.SharedFolders.user_roots = [{homes!r} + "/{{user}}"]
c.ImageCatalogue.images = [{{"name": "box", "image": "example/box:1", "display_name": "Box"}}]
"""


@pytest.fixture(scope="module")
def homes() -> Iterator[Path]:
    """The homes of alice and bob on the gateway's machine."""
    homes = Path(os.path.realpath(tempfile.mkdtemp(prefix="aqf-", dir="/tmp")))
    for name in ("alice/project", "alice/notes", "alice/sketches", "alice/.ssh", "bob", "ada"):
        (homes / name).mkdir(parents=True)
    yield homes
    shutil.rmtree(homes)


@pytest.fixture(scope="module")
def a_shared_gateway(homes: Path) -> Iterator[GatewayWithPages]:
    """A gateway with an image and with homes from which users share, and pages for its administrator."""
    with GatewayWithPages(config=_CONFIG.format(homes=str(homes))) as gateway:
        yield gateway


def open_view(lab: LabPage) -> Locator:
    lab.finish_command(_COMMAND)
    shown = lab.page.get_by_role("region", name="Shared folders")
    shown.get_by_role("heading", name="Shared with me").wait_for()
    return shown


def row_of(shown: Locator, table: str, name: str) -> Locator:
    return shown.get_by_role("table", name=table).get_by_role("row").filter(has_text=name)


def share_by_keyboard(shown: Locator, path: str, collaborator: str) -> None:
    """Fill in the form and send it with the keyboard alone."""
    shown.get_by_label("Folder, as your kernels see it").focus()
    keyboard = shown.page.keyboard
    keyboard.press("Control+A")
    keyboard.type(path)
    keyboard.press("Tab")  # a user or a team
    keyboard.press("Tab")
    keyboard.type(collaborator)
    keyboard.press("Tab")
    keyboard.press("ArrowDown")  # read and write
    keyboard.press("Shift+Tab")
    keyboard.press("Enter")


def test_a_folder_is_shared_accepted_and_ended_by_an_administrator(
    a_shared_gateway: GatewayWithPages, labs_of_two: list[LabProcess], pages: Callable[[], Page]
) -> None:
    alice, bob = (LabPage(pages()).open(server.lab_url) for server in labs_of_two)
    given, offered = open_view(alice), open_view(bob)
    share_by_keyboard(given, "~/.ssh/keys", "bob")
    given.get_by_role("alert").filter(has_text="hidden folders hold settings and keys").wait_for()
    bob.show_panel()  # it reads the status often
    share_by_keyboard(given, "~/project", "bob")
    given.get_by_text("bob is invited to ~/project.").wait_for()
    mine = row_of(given, "Shared by me", "project")
    assert mine.get_by_role("cell").nth(3).inner_text() == "read and write"
    assert mine.get_by_role("cell").nth(5).inner_text() == "no user yet"

    told = bob.page.locator(".Toastify__toast", has_text="alice shares the folder project with you, to read and write.")
    told.get_by_role("button", name="Show shared folders").click()
    assert "/shared/alice/project" in row_of(offered, "Shared with me", "project").inner_text()
    row_of(offered, "Shared with me", "project").get_by_text("alice stops sharing it").wait_for()
    row_of(offered, "Shared with me", "project").get_by_text("waits for your answer").wait_for()
    accept = offered.get_by_role("button", name="Accept project of alice")
    accept.focus()
    bob.page.keyboard.press("Enter")
    offered.get_by_text("Kernels that you start from now on have project of alice.").wait_for()
    row_of(offered, "Shared with me", "project").get_by_text("accepted").wait_for()
    for lab in (alice, bob):
        for theme in lab.in_both_themes():
            assert lab.violations(".aliquot-Folders") == [], theme

    ada = LabPage(pages()).open(a_shared_gateway.lab_url)
    all_of_them = open_view(ada)
    assert "bob" in row_of(all_of_them, "Shared by all users", "project").inner_text()
    all_of_them.get_by_role("button", name="Stop sharing project of alice with bob").click()
    all_of_them.get_by_text("project is no longer shared with bob.").wait_for()
    bob.page.reload()
    bob.wait_until_up()
    open_view(bob).get_by_text("No user shares a folder with you.").wait_for()
    assert [lab.errors for lab in (bob, ada)] == [[], []]


@pytest.mark.soak(alone="a long browser test")
def test_an_invitation_is_told_once_and_no_more_once_it_is_answered(
    labs_of_two: list[LabProcess], pages: Callable[[], Page]
) -> None:
    alice, bob = (LabPage(pages()).open(server.lab_url) for server in labs_of_two)
    given = open_view(alice)
    bob.show_panel()
    toasts = bob.page.locator(".Toastify__toast", has_text="alice shares the folder notes with you")
    share_by_keyboard(given, "~/notes", "bob")
    toasts.wait_for()
    bob.page.reload()
    bob.wait_until_up()
    bob.page.evaluate(_SHOW_PANEL)
    bob.panel.wait_for()
    share_by_keyboard(given, "~/sketches", "bob")
    later = bob.page.locator(".Toastify__toast", has_text="alice shares the folder sketches with you")
    later.wait_for()
    assert toasts.count() == 0, "a page that is loaded again tells of the later one alone"
    offered = open_view(bob)
    with bob.page.expect_response("**/aliquot/api/v1/status*"):  # the last at the pace of the panel
        bob.page.evaluate("() => jupyterapp.shell.collapseLeft()")
    offered.get_by_role("button", name="Decline sketches of alice").click()
    later.wait_for(state="detached", timeout=_BEFORE_THE_NEXT_POLL)
    assert bob.errors == []


def test_a_page_that_could_not_read_the_folders_reads_them_again(
    labs_of_two: list[LabProcess], pages: Callable[[], Page]
) -> None:
    lab = LabPage(pages()).open(labs_of_two[0].lab_url)
    refusal = {"message": "The invitations cannot be read now: No space left on device. Try again in a moment"}
    lab.page.route("**/aliquot/api/v1/invitations*", lambda route: route.fulfill(status=409, json=refusal))
    lab.finish_command(_COMMAND)
    shown = lab.page.get_by_role("region", name="Shared folders")
    alert = shown.get_by_role("alert").filter(has_text=refusal["message"])
    alert.wait_for()
    assert lab.violations(".aliquot-Folders") == []
    lab.page.unroute_all()
    again = shown.get_by_role("button", name="Try Again")
    again.focus()
    lab.page.keyboard.press("Enter")
    shown.get_by_role("heading", name="Shared with me").wait_for()
    assert (alert.count(), again.count()) == (0, 0)
