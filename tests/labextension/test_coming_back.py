"""A page that comes back in the middle of a cell shows all of its output.

A cell that is run early is not lost.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import LabProcess
else:
    from lab_page import LabPage

pytestmark = pytest.mark.browser

# The cell goes on when the test writes a file, so that nothing here depends on speed.
_COUNT = """
import pathlib, time
for number in range(30):
    print("line", number, flush=True)
    for stop, name in ((9, "away"), (19, "back")):
        while number == stop and not pathlib.Path("{name}-" + name).exists():
            time.sleep(0.05)
print("hello", input("name? "))
"""
_RUN_EARLY = """async path => {
    const panel = await jupyterapp.commands.execute('docmanager:open', {path, kernel: {name: 'python3'}});
    await panel.context.ready;
    const had = panel.sessionContext.session?.kernel ?? null;
    void jupyterapp.commands.execute('notebook:run-all-cells');
    return had === null;
}"""


class Notebook:
    """A notebook on disk, with a cell whose lines come as files appear next to it."""

    def __init__(self, folder: Path) -> None:
        self.name = f"counts-{uuid.uuid4().hex[:8]}"
        self.path = f"{self.name}.ipynb"
        self._folder = folder
        self._file = folder / self.path
        cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
        sources = {"first": "1 + 1", "count": _COUNT.replace("{name}", self.name)}
        cells = [{**cell, "id": name, "source": source} for name, source in sources.items()]
        self._file.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))

    def go_on(self, name: str) -> None:
        (self._folder / f"{self.name}-{name}").touch()

    def saved_lines(self) -> list[str]:
        outputs = json.loads(self._file.read_text())["cells"][1]["outputs"]
        return "".join("".join(output["text"]) for output in outputs).split("\n")[:-1]


class Shown:
    """A notebook in the page, brought to the front."""

    def __init__(self, lab: LabPage, notebook: Notebook) -> None:
        lab.page.evaluate(
            "path => jupyterapp.commands.execute('docmanager:open', {path}).then(panel => panel.context.ready)",
            notebook.path,
        )
        panel = lab.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
        self.cell: Locator = panel.locator(".jp-CodeCell").nth(1)

    def wait_for(self, line: int, prompt: str) -> None:
        self.cell.locator(".jp-OutputArea-output", has_text=f"line {line}\n").wait_for()
        self.cell.locator(".jp-InputPrompt", has_text=f"[{prompt}]:").wait_for()

    def lines(self) -> list[str]:
        # The box of an answered question stays for half a second, unseen, behind the cell's next
        # output.
        shown = ".jp-OutputArea-child:not(.jp-OutputArea-stdin-hiding) > .jp-OutputArea-output"
        text = "".join(self.cell.locator(shown).all_inner_texts())
        return [line for line in text.split("\n") if line]


@pytest.fixture
def a_returning_page(an_aliquot_lab: LabProcess, a_page: Page) -> Iterator[LabPage]:
    a_page.on("dialog", lambda dialog: dialog.accept())  # the page leaves a notebook that is not saved
    yield LabPage(a_page).open(an_aliquot_lab.lab_url)
    an_aliquot_lab.end_kernels()


def test_a_page_that_is_reloaded_in_mid_cell_shows_its_whole_output_and_answers_it(
    an_aliquot_lab: LabProcess, a_returning_page: LabPage
) -> None:
    lab, page = a_returning_page, a_returning_page.page
    saved, unsaved = (Notebook(an_aliquot_lab.notebooks) for _ in range(2))
    for notebook in (unsaved, saved):
        assert page.evaluate(_RUN_EARLY, notebook.path), "the cells were run before there was a kernel"
        Shown(lab, notebook).wait_for(9, "*")
    lab.finish_command("docmanager:save")
    page.goto("about:blank")
    saved.go_on("away")
    unsaved.go_on("away")
    lab.open(an_aliquot_lab.lab_url)
    for notebook in (unsaved, saved):
        shown = Shown(lab, notebook)
        shown.wait_for(19, "*")
        page.locator("#jp-main-statusbar").get_by_text("| Busy").wait_for()
        assert shown.lines() == [f"line {number}" for number in range(20)]
        notebook.go_on("back")
        box = shown.cell.locator(".jp-Stdin-input")
        box.fill("ada")
        box.press("Enter")
        shown.cell.locator(".jp-InputPrompt", has_text="[2]:").wait_for()
        want = [f"line {number}" for number in range(30)]
        assert [shown.lines()[:30], shown.lines()[-1]] == [want, "hello ada"]
        lab.finish_command("docmanager:save")
        assert [notebook.saved_lines()[:30], notebook.saved_lines()[-1]] == [want, "hello ada"]
    # Lab logs it about comms that the page before had opened.
    assert [error for error in lab.errors if "Comm not found" not in error] == []
