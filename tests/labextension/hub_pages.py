"""A JupyterHub for browser tests, and a user's acts on its pages.

The user logs in, chooses a size, and reaches JupyterLab.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hub_process import PASSWORD, HubProcess

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from tests.labextension.lab_page import LabPage
else:
    from lab_page import LabPage

# LabPage evaluates in the application; the page polls every half second.
_MORE = 'c.Spawner.args = [*c.Spawner.args, "--LabApp.expose_app_in_browser=True"]\n'
_SETTINGS = {"refreshInterval": 0.5}
_PATIENCE_MS = 180_000  # two servers start at once
_ASK = """path => {
  const {baseUrl} = JSON.parse(document.getElementById('jupyter-config-data').textContent);
  const xsrf = document.cookie.match(/_xsrf=([^;]*)/)?.[1] ?? '';
  return fetch(baseUrl + path, {headers: {'X-XSRFToken': xsrf}}).then(answer => answer.json());
}"""
_HAS_KERNEL = """id => {
  const kernel = jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel;
  return kernel?.id === id && kernel.connectionStatus === 'connected' && kernel.status === 'idle';
}"""
_WRITE = "source => jupyterapp.shell.currentWidget.content.widgets[0].model.sharedModel.setSource(source)"


class HubWithLab(HubProcess):
    """A Hub whose users have JupyterLab with a fast panel, and no question about Jupyter's news."""

    def __init__(self, *, more: str = "", **rest: Any) -> None:
        super().__init__(more=_MORE + more, **rest)
        page_config = self.home / "config" / "labconfig" / "page_config.json"
        page_config.parent.mkdir(parents=True)
        page_config.write_text(
            json.dumps({"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}})
        )
        settings = (
            self.home
            / "config"
            / "lab"
            / "user-settings"
            / "@jupyter-aliquot"
            / "labextension"
            / "plugin.jupyterlab-settings"
        )
        settings.parent.mkdir(parents=True)
        settings.write_text(json.dumps(_SETTINGS))

    def notebooks(self, user: str) -> Path:
        """Return the folder of the user's server."""
        return self.home / "home" / user


class Person:
    """A user with a browser, their password, and the Hub's address if there is one."""

    def __init__(self, page: Page, name: str, hub: HubProcess | None = None) -> None:
        self.page = page
        self.name = name
        self._hub = hub
        self.lab = LabPage(page)

    def log_in(self) -> None:
        """Log in by the Hub's own form; without a running server it leads to the spawn page."""
        assert self._hub is not None  # the user fills in the Hub's form
        self.page.goto(f"{self._hub.url}/hub/login")
        self.page.get_by_label("Username:").fill(self.name)
        self.page.locator("#password_input").fill(PASSWORD)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_role("heading", name="Server Options").wait_for()

    def ask_for(self, size: str) -> None:
        """Request a size that is not listed, and press Start: an answer follows."""
        self.page.get_by_role("textbox", name="Another size").fill(size)
        self.page.get_by_role("button", name="Start", exact=True).click()

    def choose(self, size: str) -> None:
        """Choose a listed size by the begin of its label, and press Start."""
        self.page.get_by_role("radio", name=size).first.check()
        self.page.get_by_role("button", name="Start", exact=True).click()

    def wait_for_lab(self) -> LabPage:
        """Wait until the page of the server's start is over; return Lab with the panel open."""
        self.page.wait_for_url(f"**/user/{self.name}/lab**", timeout=_PATIENCE_MS)
        self.page.wait_for_function("() => globalThis.jupyterapp?.restored.then(() => true)", timeout=_PATIENCE_MS)
        self.lab.finish_command("aliquot:show-gpu-kernels")  # a click would close the open panel
        self.lab.panel.wait_for()
        return self.lab

    def kernel_ids(self) -> list[str]:
        """Return the ids of the kernels in this user's panel, their own and shared ones."""
        kernels: list[dict[str, Any]] = self.ask("aliquot/api/v1/status")["kernels"]
        return [kernel["id"] for kernel in kernels]

    def ask(self, path: str) -> Any:
        """Request a path with the page's own login, as a script in it would."""
        return self.page.evaluate(_ASK, path)

    def share(self, title: str, name: str, may: str) -> None:
        """Share an own kernel with a user, by the dialog; ``may``: the begin of the choice's label."""
        dialog = self.open_sharing(title)
        dialog.get_by_role("textbox", name="Name of the user").fill(name)
        dialog.get_by_role("radio", name=may).check()
        dialog.get_by_role("button", name="Share", exact=True).click()
        dialog.get_by_role("status").get_by_text(f"Shared with {name}").wait_for()
        self.close(dialog)

    def open_sharing(self, title: str) -> Locator:
        """Open the share dialog of an own kernel."""
        actions = self.lab.panel.get_by_role("group", name=f"Actions for {title}")
        if not actions.is_visible():
            self.lab.panel.get_by_role("button", name=f"Actions and details of {title}").click()
        actions.get_by_role("button", name="Share…").click()
        dialog = self.page.get_by_role("dialog").filter(has_text=f"Share {title}")
        dialog.get_by_role("heading", name="Users and teams with access").wait_for()
        return dialog

    def close(self, dialog: Locator) -> None:
        dialog.get_by_role("button", name="Close").click()
        dialog.wait_for(state="detached")

    def wait_for_kernel(self, kernel_id: str) -> None:
        """Wait until the widget in front is attached to this kernel, and the kernel is idle."""
        self.page.wait_for_function(_HAS_KERNEL, arg=kernel_id, timeout=_PATIENCE_MS)

    def run(self, source: str) -> None:
        """Run the source as the first cell of the notebook in front."""
        self.page.evaluate(_WRITE, source)
        self.lab.finish_command("notebook:run-all-cells")
