"""Scenes of one user's JupyterLab for the documents' pictures, in the order of the play.

Each scene begins with the state that the scene before it left. All figures are a real gateway's, on
the software GPU.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import REPOSITORY
    from tests.labextension.pictures import around, take
    from tests.labextension.server_processes import an_empty_notebook
else:
    from lab_process import REPOSITORY
    from pictures import around, take
    from server_processes import an_empty_notebook

QUICKSTART = REPOSITORY / "examples" / "quickstart.ipynb"
WIDTH, HEIGHT = 1280, 800
SIDEBAR_WIDTH = 330
# No trim in the middle of a scene, and no warning where other programs use the machine's memory.
_AGENT = ("--trim-after", "0", "--swap-memory")
SERVER_OPTIONS = (
    "--Aliquot.keep_kernels=never",
    *(f"--Aliquot.agent_options={word}" for word in (*_AGENT, "4GiB")),
)
# For scenes that swap nothing out.
AGENT_OPTIONS = tuple(f"--Aliquot.agent_options={word}" for word in (*_AGENT, "256MiB"))
_LONG_CELL = "while time.monotonic()"
HOLD = """\
from cuda.bindings import driver

GIB = 1 << 30


def allocate(n_bytes):
    code, pointer = driver.cuMemAlloc(n_bytes)
    if code != driver.CUresult.CUDA_SUCCESS:
        raise MemoryError(f"requested {{n_bytes / GIB:.0f}} GiB: {{code.name}}")
    return pointer


driver.cuInit(0)
_, context = driver.cuDevicePrimaryCtxRetain(0)
driver.cuCtxSetCurrent(context)
model = allocate({gib} * GIB)"""
_TO_THE_ACTIVE_CELL = """() => {
  const notebook = jupyterapp.shell.currentWidget.content;
  return notebook.scrollToItem(notebook.activeCellIndex, 'center');
}"""
_MORE = "batch = allocate(4 * GIB)"
_COUNT = """\
import time

for epoch in range(1, 500):
    print(f"epoch {epoch}: loss {2 / epoch:.3f}")
    time.sleep(0.4)
"""
# The neighbors of the notebook in the picture: path, share, GiB that they hold.
_NEIGHBOURS = [("train.ipynb", "0.5", 5), ("evaluate.ipynb", "0.25", 2)]


def play(lab: LabPage, notebooks: Path, images: Path) -> None:
    """Play all scenes."""
    write_notebooks(notebooks)
    show_three_kernels(lab, images)
    show_popover(lab, images)
    show_resize(lab, images)
    show_swapped(lab, images)
    show_coming_back(lab, images)  # before a notebook without a kernel is open: a reload would ask for one
    show_picker(lab, images)
    show_queue(lab, images)
    show_out_of_memory(lab, images)
    show_history(lab, images)


def write_notebooks(folder: Path) -> None:
    shutil.copy(QUICKSTART, folder)
    for path, share, gib in _NEIGHBOURS:
        an_empty_notebook(folder, path, f"python3.gpu-{share}", HOLD.format(gib=gib))
    an_empty_notebook(folder, "explore.ipynb", "python3.gpu-0.5", "print('I have a GPU now')")
    an_empty_notebook(folder, "epochs.ipynb", "python3", _COUNT)


def show_three_kernels(lab: LabPage, images: Path) -> None:
    """Show a notebook at work, and the panel next to it."""
    for path, share, _ in _NEIGHBOURS:
        lab.open_notebook(path, f"python3.gpu-{share}")
        lab.finish_command("notebook:run-all-cells")
    lab.open_notebook(QUICKSTART.name, "python3.gpu-0.25")
    _run_quickstart_into_its_long_cell(lab)
    panel = lab.show_panel()
    _widen(lab)
    for _, _, gib in _NEIGHBOURS:
        panel.get_by_text(f"{gib}.0 of").first.wait_for()
    panel.get_by_text(re.compile(r"^([5-9]\d|100)% busy")).first.wait_for()
    panel.get_by_text(re.compile(r"^([5-9]\d|100)% of GPU time")).first.wait_for()
    _hide_notices(lab)
    take(lab, images / "sidebar", settle=lambda: lab.page.evaluate(_TO_THE_ACTIVE_CELL))


def show_popover(lab: LabPage, images: Path) -> None:
    """Show the button in the notebook's toolbar, and the popover that it opens."""
    page = lab.page
    page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .aliquot-KernelItem jp-button").click()
    popover = page.get_by_role("dialog", name="GPU of")
    popover.wait_for()
    bar = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-NotebookPanel-toolbar")
    whole = around(popover, bar, margin=0)
    take(lab, images / "toolbar", {**whole, "height": whole["height"] + 16})
    page.keyboard.press("Escape")


def show_resize(lab: LabPage, images: Path) -> None:
    """Show a larger share for a kernel that runs, before the user requests it."""
    entry = _unfold(lab, QUICKSTART.name)
    form = lab.panel.get_by_role("form", name=f"Size of {QUICKSTART.name}")
    form.get_by_role("spinbutton", name="GPU share").fill("0.15")
    form.get_by_text("Changes at once").wait_for()
    with _tall(lab):
        entry.evaluate("entry => entry.scrollIntoView({block: 'end'})")
        take(lab, images / "resize", around(lab.panel, margin=0))
    form.get_by_role("button", name="Reset").click()
    _fold(entry)


def show_swapped(lab: LabPage, images: Path) -> None:
    """Show a kernel whose memory is in host memory, with the button that restores it."""
    name = "evaluate.ipynb"
    entry = _unfold(lab, name)
    entry.get_by_role("button", name="Swap Out").click()
    entry.get_by_text("in host memory").first.wait_for()
    entry.get_by_role("button", name="Restore").wait_for()
    with _tall(lab):
        entry.evaluate("entry => entry.scrollIntoView({block: 'start'})")
        swapped = entry.get_by_text(re.compile("^swapped out")).first
        take(lab, images / "swapped", around(lab.panel, margin=0), settle=swapped.wait_for)
    entry.get_by_role("button", name="Restore").click()
    entry.get_by_role("button", name="Swap Out").wait_for()
    _fold(entry)


def show_picker(lab: LabPage, images: Path) -> None:
    """Show the question for a new notebook's kernel: a preset, then a size of one's own."""
    page = lab.page
    lab.start_command("notebook:create-new")
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("radio", name="0.5 GPU, 8 GiB").check()
    dialog.get_by_role("status").filter(has_text=re.compile(".")).wait_for()
    take(lab, images / "picker", around(dialog.locator(".jp-Dialog-content")))
    dialog.get_by_role("radio", name="Custom").check()
    dialog.get_by_role("spinbutton", name="GPU share").fill("0.15")
    dialog.get_by_role("status").filter(has_text=re.compile(".")).wait_for()
    take(lab, images / "custom-size", around(dialog.locator(".jp-Dialog-content")))
    dialog.get_by_role("button", name="No Kernel").click()
    dialog.wait_for(state="detached")


def show_queue(lab: LabPage, images: Path) -> None:
    """Show a cell of a kernel that waits in the queue; the reason is next to it and in the panel."""
    page = lab.page
    lab.start_command("docmanager:open", path="explore.ipynb", kernel={"name": "python3.gpu-0.5"})
    lab.panel.get_by_text("explore.ipynb").first.wait_for()
    page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell").first.wait_for()
    lab.start_command("notebook:run-all-cells")
    page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .aliquot-CellBadge").first.wait_for()
    take(lab, images / "waiting-cell")
    lab.finish_command("kernelmenu:shutdown")


def show_out_of_memory(lab: LabPage, images: Path) -> None:
    """Show a cell that exceeds its memory limit: the error, and a larger size with one click."""
    page = lab.page
    lab.open_notebook("train.ipynb", "python3.gpu-0.5")
    lab.finish_command("notebook:insert-cell-below")
    page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell").last.locator(".cm-content").fill(_MORE)
    lab.start_command("notebook:run-cell")
    shown = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-OutputArea-output")
    shown.get_by_text("MemoryError").last.wait_for()
    page.locator(".Toastify__toast").get_by_text(re.compile("train.ipynb ran out of (its )?GPU memory")).wait_for()
    take(lab, images / "out-of-memory")


def show_history(lab: LabPage, images: Path) -> None:
    """Show the GPU use of each user over the last hour."""
    _hide_notices(lab)
    lab.run_command("Show GPU History")
    lab.page.locator(".aliquot-Chart svg").first.wait_for()
    take(lab, images / "history")
    lab.start_command("application:close")


def show_coming_back(lab: LabPage, images: Path) -> None:
    """Show a page that was reloaded while a cell ran: the cell goes on where it was."""
    page = lab.page
    page.on("dialog", lambda dialog: dialog.accept())  # the page leaves notebooks that are not saved
    lab.open_notebook("epochs.ipynb", "python3")
    lab.finish_command("docmanager:save")
    lab.start_command("notebook:run-all-cells")
    output = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-OutputArea-output")
    output.get_by_text("epoch 5:").wait_for()
    lab.reload()
    output.get_by_text("epoch 9:").wait_for()
    page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .aliquot-KernelItem").get_by_text("No GPU").wait_for()
    take(lab, images / "coming-back")


def _run_quickstart_into_its_long_cell(lab: LabPage) -> None:
    """Run the quickstart until its long cell has begun; all cells above it have ended then."""
    cells = json.loads(QUICKSTART.read_text())["cells"]
    index = next(i for i, cell in enumerate(cells) if _LONG_CELL in "".join(cell["source"]))
    lab.page.evaluate("index => { jupyterapp.shell.currentWidget.content.activeCellIndex = index; }", index)
    lab.finish_command("notebook:run-all-above")
    lab.start_command("notebook:run-cell")
    lab.page.locator(".jp-OutputArea-output", has_text="spinning").wait_for()


def _hide_notices(lab: LabPage) -> None:
    """Hide the notices that cover a part of the page."""
    told = lab.page.locator(".Toastify__toast")
    while told.count():
        told.first.get_by_role("button", name="Hide notification").click()
        told.first.wait_for(state="detached")


@contextlib.contextmanager
def _tall(lab: LabPage) -> Iterator[None]:
    """Make the page high enough for a kernel's actions below the devices."""
    lab.page.set_viewport_size({"width": WIDTH, "height": 960})
    yield
    lab.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})


def _widen(lab: LabPage) -> None:
    edge = lab.page.locator("#jp-left-stack").bounding_box()
    assert edge is not None
    x, y = edge["x"] + edge["width"] + 1, edge["y"] + edge["height"] / 2
    lab.page.mouse.move(x, y)
    lab.page.mouse.down()
    lab.page.mouse.move(SIDEBAR_WIDTH, y)
    lab.page.mouse.up()


def _unfold(lab: LabPage, name: str) -> Locator:
    """Unfold a kernel's entry in the panel, with its actions."""
    entry = lab.panel.get_by_role("list", name="GPU kernels").get_by_role("listitem").filter(has_text=name)
    entry.get_by_role("button", name=f"Actions and details of {name}").click()
    return entry


def _fold(entry: Locator) -> None:
    entry.get_by_role("button", name="Actions and details of").click()
