"""Scenes with several users or another front end.

Two users side by side, the administrator, Notebook 7.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.labextension import gallery
    from tests.labextension.admin_script import open_view
    from tests.labextension.lab_page import LabPage, NotebookPage
    from tests.labextension.pictures import around, take
    from tests.labextension.server_processes import GatewayProcess, NotebookProcess, an_empty_notebook, why_no_notebook
else:
    import gallery
    from admin_script import open_view
    from lab_page import LabPage, NotebookPage
    from pictures import around, take
    from server_processes import GatewayProcess, NotebookProcess, an_empty_notebook, why_no_notebook

# Three kernels with 1 GiB each, and their contexts.
_ALL_HOLD = re.compile(r"^3\.[0-9] of 16\.0 GiB used")
_USERS = {"alice": ("train.ipynb", "0.25"), "bob": ("explore.ipynb", "0.5"), "ada": ("check.ipynb", "0.1")}


def play_two_users(new_page: Callable[[], Page], images: Path) -> None:
    """Show Alice's and Bob's views of one GPU, and the administrator's."""
    options = ("--Aliquot.keep_kernels=never", *gallery.AGENT_OPTIONS)
    with GatewayProcess(options=options) as gateway, contextlib.ExitStack() as labs:
        seen: dict[str, LabPage] = {}
        for user, (path, share) in _USERS.items():
            server = labs.enter_context(gateway.lab_of(user))
            an_empty_notebook(server.notebooks, path, f"python3.gpu-{share}", gallery.HOLD.format(gib=1))
            seen[user] = LabPage(new_page()).open(server.lab_url)
            seen[user].open_notebook(path, f"python3.gpu-{share}")
            seen[user].start_command("notebook:run-all-cells")
            seen[user].show_panel()
        for user, lab in seen.items():
            rows = lab.panel.get_by_role("list", name="GPU kernels").get_by_role("listitem")
            rows.filter(has_text=_USERS[user][0]).first.wait_for()
            lab.panel.get_by_text(_ALL_HOLD).first.wait_for()
            name = "administrator" if user == "ada" else f"user-{user}"
            take(lab, images / name, around(lab.panel, margin=0))
        show_administration(seen["ada"], images)


def show_administration(lab: LabPage, images: Path) -> None:
    """Show the administrator's table of all users' kernels."""
    lab.start_command("application:toggle-left-area")
    view = open_view(lab)
    rows = view.get_by_role("grid", name="Kernels").get_by_role("row")
    rows.nth(len(_USERS)).wait_for()
    take(lab, images / "administration", around(view.get_by_role("tablist"), rows.last))


def play_notebook(new_page: Callable[[], Page], images: Path) -> None:
    """Show Notebook 7: the same button in the toolbar, the same question for a kernel."""
    if reason := why_no_notebook():
        raise RuntimeError(reason)
    with NotebookProcess(with_aliquot=True) as server:
        path = an_empty_notebook(server.notebooks, "train.ipynb", "python3.gpu-0.25", gallery.HOLD.format(gib=3))
        notebook = NotebookPage(new_page())
        notebook.open(server.notebook_url(path))
        notebook.wait_until_attached(path)
        notebook.start_command("notebook:run-all-cells")
        page = notebook.page
        page.locator(".aliquot-KernelItem jp-button").first.click()
        page.get_by_role("dialog", name="GPU of").get_by_text("3.0 of 4.0 GiB").wait_for()
        take(notebook, images / "notebook7")
