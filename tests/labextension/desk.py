"""A page of JupyterLab with a user's notebooks, whose kernels wait, and the folder behind it."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from tests.labextension.lab_page import LabPage

# A busy machine may delay one of them.
_TRIES = 3
_PATIENCE_SECONDS = 60.0
_OPEN = "([path, name]) => jupyterapp.commands.execute('docmanager:open', {path, kernel: {name}}).then(() => null)"
_RECONNECT = """async () => {
  const began = performance.now();
  await jupyterapp.shell.currentWidget.sessionContext.session.kernel.reconnect();
  return (performance.now() - began) / 1000;
}"""
_ASK = """([path, method, body]) => {
  const {baseUrl} = JSON.parse(document.getElementById('jupyter-config-data').textContent);
  const xsrf = document.cookie.match(/_xsrf=([^;]*)/)?.[1] ?? '';
  const headers = {'X-XSRFToken': xsrf, 'Content-Type': 'application/json'};
  return fetch(baseUrl + path, {method, body, headers}).then(answer => answer.text());
}"""
_HAS_KERNEL = """path => {
  const { context } = jupyterapp.shell.currentWidget;
  return context?.path === path && !!context.sessionContext.session?.kernel;
}"""


@dataclass
class Desk:
    """A page of JupyterLab, and the folder that it shows."""

    lab: LabPage
    notebooks: Path

    @property
    def page(self) -> Page:
        return self.lab.page

    def notebook(self, *sources: str) -> str:
        path = f"waits-{uuid.uuid4().hex[:8]}.ipynb"
        empty = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
        cells = [{**empty, "id": f"cell-{n}", "source": source} for n, source in enumerate(sources)]
        content = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        (self.notebooks / path).write_text(json.dumps(content))
        return path

    def open(self, path: str, kernel_name: str) -> None:
        """Bring a notebook to the front, and wait until it has its kernel.

        The kernel may wait for its own part of the GPU.
        """
        self.page.evaluate(_OPEN, [path, kernel_name])
        self.page.wait_for_function(_HAS_KERNEL, arg=path)

    def ask(self, path: str, method: str = "GET", body: Any = None) -> Any:
        told = self.page.evaluate(_ASK, [path, method, None if body is None else json.dumps(body)])
        return json.loads(told) if told else None

    def start_kernel(self, name: str) -> str:
        return str(self.ask("api/kernels", "POST", {"name": name})["id"])

    def end_kernels(self) -> None:
        for kernel in self.ask("api/kernels"):
            self.ask(f"api/kernels/{kernel['id']}", "DELETE")

    def run_all(self, path: str) -> None:
        """Run all cells as a user does; the notebook is in front."""
        assert self.page.evaluate("jupyterapp.shell.currentWidget.context.path") == path
        self.lab.start_command("notebook:run-all-cells")

    def prompts(self) -> Locator:
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell .jp-InputPrompt")

    def output(self, text: str) -> Locator:
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-OutputArea-output", has_text=text).first

    def until_kept(self, kernel_id: str, want_cells: int) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while len(cells := self.ask(f"aliquot/api/v1/kernels/{kernel_id}/outputs")["cells"]) != want_cells:
            assert time.monotonic() < deadline, cells
            self.page.wait_for_timeout(50)

    def seconds_to_connect(self) -> float:
        """Return the seconds in which the page's websocket to the kernel in front opens.

        The start of that kernel is not included.
        """
        return min(float(self.page.evaluate(_RECONNECT)) for _ in range(_TRIES))
