"""Scenes of a JupyterHub: the spawn page with its sizes, and a kernel that Alice shares with Bob."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hub_process import OPTIONS, hub_problem

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.labextension import gallery
    from tests.labextension.hub_pages import HubWithLab, Person
    from tests.labextension.pictures import around, take
    from tests.labextension.server_processes import an_empty_notebook
else:
    import gallery
    from hub_pages import HubWithLab, Person
    from pictures import around, take
    from server_processes import an_empty_notebook

_LIMITS = {"user_limits": {"alice": 0.75}, "team_limits": {"vision": 1.0, "speech": 0.5}}
_LOOK = "epochs = 12\nprint('on alice’s GPU:', epochs, 'epochs')"


@dataclass(frozen=True)
class _HubPage:
    """A page of the Hub, which sets its themes by an attribute."""

    page: Page

    def in_both_themes(self) -> Iterator[str]:
        for theme in ("light", "dark"):
            self.page.evaluate("theme => document.documentElement.setAttribute('data-bs-theme', theme)", theme)
            yield theme


def play_hub(new_page: Callable[[], Page], images: Path) -> None:
    """Play the scenes from the spawn page to a cell in another user's kernel."""
    if problem := hub_problem():
        raise RuntimeError(problem)
    options = (*OPTIONS, *gallery.AGENT_OPTIONS)
    with HubWithLab(arguments={**_LIMITS, "gateway_options": options}) as hub:
        alice, bob = (Person(new_page(), name, hub) for name in ("alice", "bob"))
        for person in (alice, bob):
            person.page.set_viewport_size({"width": 1080, "height": 720})
            person.log_in()
        alice.page.get_by_role("radio", name="0.25 GPU").first.check()
        form = alice.page.locator("#spawn_form")
        take(
            _HubPage(alice.page),
            images / "spawn-page",
            around(alice.page.get_by_role("heading", name="Server Options"), form, margin=20),
        )
        alice.choose("0.25 GPU")
        bob.choose("No GPU")
        an_empty_notebook(hub.notebooks("alice"), "train.ipynb", "python3", gallery.HOLD.format(gib=3))
        alice.wait_for_lab().open_notebook("train.ipynb", "python3")
        alice.lab.finish_command("notebook:run-all-cells")
        bob.wait_for_lab()
        _share(alice, images)
        _use(alice, bob, images)


def _share(alice: Person, images: Path) -> None:
    alice.lab.panel.get_by_text("3.0 of 4.0 GiB used").first.wait_for()
    dialog = alice.open_sharing("train.ipynb")
    for kind, name, may in (("a team", "vision", "read:"), ("a user", "bob", "write:")):
        dialog.get_by_role("radio", name=kind).check()
        dialog.get_by_role("textbox").fill(name)
        dialog.get_by_role("radio", name=may).check()
        dialog.get_by_role("button", name="Share", exact=True).click()
        dialog.get_by_role("list", name="Users and teams with access").get_by_text(name).wait_for()
    take(alice.lab, images / "share-dialog")
    alice.close(dialog)


def _use(alice: Person, bob: Person, images: Path) -> None:
    told = bob.page.locator(".Toastify__toast", has_text="you can run cells in it.")
    told.get_by_role("button", name="Open a notebook on it").click()
    bob.wait_for_kernel(alice.kernel_ids()[0])
    bob.run(_LOOK)
    bob.page.locator(".jp-OutputArea-output", has_text="12 epochs").wait_for()
    told.wait_for(state="detached")
    bob.lab.panel.get_by_role("button", name="Actions and details of").last.click()
    bob.page.set_viewport_size({"width": 1080, "height": 840})
    bob.lab.panel.get_by_role("button", name="Restart…").scroll_into_view_if_needed()
    take(bob.lab, images / "shared-kernel")
