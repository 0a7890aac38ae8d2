"""A Lab page whose server is killed: it comes back by itself, with all that a cell printed, and hears of changes."""

from __future__ import annotations

import itertools
import json
import urllib.request
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from ports import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Page, WebSocket

    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import LabProcess
else:
    from lab_page import LabPage
    from lab_process import LabProcess

pytestmark = pytest.mark.browser

_LINES = 80
_TRIES = 120
_COUNT = f"""
import time
for number in range({_LINES}):
    print("line", number, flush=True)
    time.sleep(0.1)
"""


@pytest.fixture
def a_mortal_lab() -> Iterator[LabProcess]:
    """JupyterLab with Aliquot; its kernels end with it only when it is asked to end in order."""
    with LabProcess(with_aliquot=True, options=("--Aliquot.keep_kernels=auto",), port=free_port()) as lab:
        yield lab
        lab.end_kernels()


def test_a_page_reconnects_by_itself_and_shows_the_running_cells_whole_output(
    a_mortal_lab: LabProcess, a_page: Page
) -> None:
    cells = [{"cell_type": "code", "id": "count", "source": _COUNT, "metadata": {}, "outputs": []}]
    cells.append({**cells[0], "id": "after", "source": "print('number is', number)"})
    notebook = {"cells": [{**cell, "execution_count": None} for cell in cells]}
    path = a_mortal_lab.notebooks / "count.ipynb"
    path.write_text(json.dumps({**notebook, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    lab = LabPage(a_page).open(a_mortal_lab.lab_url)
    lab.open_notebook(path.name, "python3")
    lab.start_command("notebook:run-all-cells")
    output = a_page.locator(".jp-OutputArea-output")
    output.filter(has_text="line 9").first.wait_for()
    a_mortal_lab.kill_and_start_again()
    output.filter(has_text=f"number is {_LINES - 1}").first.wait_for(timeout=60_000)
    shown = "".join(output.all_inner_texts()).split("number is")[0].split("\n")
    assert [line for line in shown if line] == [f"line {number}" for number in range(_LINES)]
    a_page.locator("#jp-main-statusbar").get_by_text("| Idle").wait_for()


def test_a_panel_whose_gateway_is_lost_says_so_and_hears_of_changes_again(
    a_mortal_lab: LabProcess, a_page: Page
) -> None:
    streams: list[list[str]] = []

    def note(socket: WebSocket) -> None:
        if "/aliquot/api/events" in socket.url:
            heard: list[str] = []
            streams.append(heard)
            socket.on("framereceived", lambda frame: heard.append(str(frame)))

    a_page.on("websocket", note)
    (a_mortal_lab.notebooks / "small.ipynb").write_text(
        json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    lab = LabPage(a_page).open(a_mortal_lab.lab_url)
    lab.open_notebook("small.ipynb", "python3.gpu-0.25")
    kernel = lab.show_panel().get_by_role("listitem").filter(has_text="small.ipynb").filter(has_text="0.25 GPU")
    kernel.first.wait_for()
    a_mortal_lab.kill()
    lost = lab.panel.get_by_text("The server does not answer.")
    lost.wait_for()
    before = len(streams)
    a_mortal_lab.start_again()
    lost.wait_for(state="detached")
    kernel_id = _ask(a_mortal_lab, "GET", "api/kernels")[0]["id"]
    for gpus in itertools.islice(itertools.cycle([0.5, 0.25]), _TRIES):  # until one falls into a stream that is open
        _ask(a_mortal_lab, "PATCH", f"aliquot/api/kernels/{kernel_id}", {"gpus": gpus})
        a_page.wait_for_timeout(500)
        heard = [event for stream in streams[before:] for event in stream]
        if any('"granted"' in event for event in heard):
            break
    else:
        pytest.fail(f"no event of {_TRIES} changes was heard; streams: {streams}")
    lab.panel.get_by_role("listitem").filter(has_text="small.ipynb").filter(has_text=f"{gpus:g} GPU").first.wait_for()


def _ask(lab: LabProcess, method: str, path: str, body: object = None) -> Any:
    headers = {"Authorization": f"token {lab.token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{lab.url}{path}", data, headers, method=method)) as answer:
        return json.load(answer)
