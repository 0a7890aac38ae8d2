"""A JupyterHub for browser tests, and what a person does on its pages: log in, choose a size, reach JupyterLab."""

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

# LabPage speaks to the application; a look every half second.
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
    """Its users have JupyterLab with a fast panel, and without the question about Jupyter's news."""

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
        """The folder of the user's server."""
        return self.home / "home" / user


class Person:
    """Somebody with a browser of their own, who knows their password, and the Hub's address where there is one."""

    def __init__(self, page: Page, name: str, hub: HubProcess | None = None) -> None:
        self.page = page
        self.name = name
        self._hub = hub
        self.lab = LabPage(page)

    def log_in(self) -> None:
        """By the Hub's own form; leads to the spawn page where no server runs."""
        assert self._hub is not None  # its form is what is filled in
        self.page.goto(f"{self._hub.url}/hub/login")
        self.page.get_by_label("Username:").fill(self.name)
        self.page.locator("#password_input").fill(PASSWORD)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_role("heading", name="Server Options").wait_for()

    def ask_for(self, size: str) -> None:
        """Another size than those listed, and Start: an answer follows."""
        self.page.get_by_role("textbox", name="Another size").fill(size)
        self.page.get_by_role("button", name="Start", exact=True).click()

    def choose(self, size: str) -> None:
        """One that is listed, by what its label begins with, and Start."""
        self.page.get_by_role("radio", name=size).first.check()
        self.page.get_by_role("button", name="Start", exact=True).click()

    def wait_for_lab(self) -> LabPage:
        """Past the page that shows how the server starts; with the panel open."""
        self.page.wait_for_url(f"**/user/{self.name}/lab**", timeout=_PATIENCE_MS)
        self.page.wait_for_function("() => globalThis.jupyterapp?.restored.then(() => true)", timeout=_PATIENCE_MS)
        self.lab.finish_command("aliquot:show-gpu-kernels")  # a click would close what the layout has opened already
        self.lab.panel.wait_for()
        return self.lab

    def kernel_ids(self) -> list[str]:
        """Of the kernels that this person's panel is about, their own and shared ones."""
        kernels: list[dict[str, Any]] = self.ask("aliquot/api/v1/status")["kernels"]
        return [kernel["id"] for kernel in kernels]

    def ask(self, path: str) -> Any:
        """By the page's own login, as a script in it would."""
        return self.page.evaluate(_ASK, path)

    def share(self, title: str, name: str, may: str) -> None:
        """Give a kernel of one's own to a user, by the dialog; ``may``: what the choice begins with."""
        dialog = self.open_sharing(title)
        dialog.get_by_role("textbox", name="Name of the user").fill(name)
        dialog.get_by_role("radio", name=may).check()
        dialog.get_by_role("button", name="Share", exact=True).click()
        dialog.get_by_role("status").get_by_text(f"Shared with {name}").wait_for()
        self.close(dialog)

    def open_sharing(self, title: str) -> Locator:
        """The dialog of a kernel of one's own."""
        actions = self.lab.panel.get_by_role("group", name=f"Actions for {title}")
        if not actions.is_visible():
            self.lab.panel.get_by_role("button", name=f"Actions and details of {title}").click()
        actions.get_by_role("button", name="Share…").click()
        dialog = self.page.get_by_role("dialog").filter(has_text=f"Share {title}")
        dialog.get_by_role("heading", name="Who has it").wait_for()
        return dialog

    def close(self, dialog: Locator) -> None:
        dialog.get_by_role("button", name="Close").click()
        dialog.wait_for(state="detached")

    def wait_for_kernel(self, kernel_id: str) -> None:
        """Until what is in front is attached to this kernel, which rests."""
        self.page.wait_for_function(_HAS_KERNEL, arg=kernel_id, timeout=_PATIENCE_MS)

    def run(self, source: str) -> None:
        """As the text of the first cell of the notebook in front."""
        self.page.evaluate(_WRITE, source)
        self.lab.finish_command("notebook:run-all-cells")
