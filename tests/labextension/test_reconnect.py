"""A Lab page whose server is killed comes back by itself.

It has all output of its cells, and receives events again.
"""

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

    from tests.labextension.hub_pages import Person
    from tests.labextension.lab_page import LabPage
    from tests.labextension.lab_process import LabProcess
    from tests.labextension.server_processes import ADMINISTRATOR, TOKENS, GatewayProcess, an_empty_notebook
else:
    from hub_pages import Person
    from lab_page import LabPage
    from lab_process import LabProcess
    from server_processes import ADMINISTRATOR, TOKENS, GatewayProcess, an_empty_notebook

pytestmark = pytest.mark.browser

_LINES = 80
_TRIES = 120
_WRITE = "source => jupyterapp.shell.currentWidget.content.widgets[0].model.sharedModel.setSource(source)"
_CONNECTION = "jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.connectionStatus"
_COUNT = f"""
import time
for number in range({_LINES}):
    print("line", number, flush=True)
    time.sleep(0.1)
"""


@pytest.fixture
def a_mortal_lab() -> Iterator[LabProcess]:
    """JupyterLab with Aliquot; it ends its kernels only on an orderly stop."""
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
    output.filter(has_text=f"number is {_LINES - 1}").first.wait_for(timeout=180_000)
    shown = "".join(output.all_inner_texts()).split("number is")[0].split("\n")
    assert [line for line in shown if line] == [f"line {number}" for number in range(_LINES)]
    a_page.locator("#jp-main-statusbar").get_by_text("| Idle").wait_for()


@pytest.mark.soak(alone="a long browser test")
def test_a_panel_whose_gateway_is_lost_says_so_and_hears_of_changes_again(
    a_mortal_lab: LabProcess, a_page: Page
) -> None:
    streams: list[list[str]] = []

    def note(socket: WebSocket) -> None:
        if "/aliquot/api/v1/events" in socket.url:
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
    for gpus in itertools.islice(itertools.cycle([0.5, 0.25]), _TRIES):  # until an open stream gets one
        _ask(a_mortal_lab, "PATCH", f"aliquot/api/v1/kernels/{kernel_id}", {"gpus": gpus})
        a_page.wait_for_timeout(500)
        heard = [event for stream in streams[before:] for event in stream]
        if any('"granted"' in event for event in heard):
            break
    else:
        pytest.fail(f"no event of {_TRIES} changes was heard; streams: {streams}")
    lab.panel.get_by_role("listitem").filter(has_text="small.ipynb").filter(has_text=f"{gpus:g} GPU").first.wait_for()


@pytest.fixture
def a_mortal_gateway() -> Iterator[GatewayProcess]:
    """A gateway whose kernels outlive it, and end with the test."""
    with GatewayProcess(options=("--Aliquot.keep_kernels=always",), port=free_port()) as gateway:
        yield gateway
        if not gateway.is_running:
            gateway.start_again()
        gateway.token = TOKENS[ADMINISTRATOR]
        gateway.end_kernels()


@pytest.mark.soak(alone="a long browser test")
def test_an_open_notebook_runs_cells_again_after_its_server_had_given_the_gateway_up(
    a_mortal_gateway: GatewayProcess, a_page: Page
) -> None:
    """A cell that is run while the gateway is away waits in the page, and runs once."""
    few = {"@jupyter-aliquot/labextension:plugin": {"refreshInterval": 0.5}}
    knobs = ("--GatewayClient.gateway_retry_max=1", "--GatewayClient.gateway_retry_interval=0.25")
    with a_mortal_gateway.lab_of("bob", few, knobs) as server:
        bob = Person(a_page, "bob")
        path = an_empty_notebook(server.notebooks, "stays.ipynb", "python3")
        bob.lab.open(server.lab_url).open_notebook(path, "python3")
        bob.lab.show_panel()
        bob.run("kept = 40\nprint('it is', kept)")
        outputs = a_page.locator(".jp-OutputArea-output")
        outputs.filter(has_text="it is 40").wait_for()
        kernel_id = a_page.evaluate("jupyterapp.shell.currentWidget.sessionContext.session.kernel.id")
        with a_page.expect_response(lambda got: f"api/kernels/{kernel_id}" in got.url and got.status == 503):
            a_mortal_gateway.kill()
        a_page.evaluate(_WRITE, "kept += 2\nprint('still', kept)")
        bob.lab.start_command("notebook:run-all-cells")
        a_mortal_gateway.start_again()
        outputs.filter(has_text="still 42").wait_for()
        bob.wait_for_kernel(kernel_id)
        bob.run("print('and', kept)")
        outputs.filter(has_text="and 42").wait_for()


def _lose_a_cell(page: Page, server: LabProcess) -> None:
    """Send a cell when its server goes: it shows that it did not run, and the next one runs."""
    outputs, prompt = page.locator(".jp-OutputArea-output"), page.locator(".jp-InputPrompt").first
    page.evaluate(_WRITE, "runs = 0; print('runs is', runs)")
    lab = LabPage(page)
    lab.finish_command("notebook:run-all-cells")
    outputs.filter(has_text="runs is 0").wait_for()
    page.evaluate(_WRITE, "runs += 1; print('it ran')")
    server.freeze()
    lab.start_command("notebook:run-all-cells")
    prompt.filter(has_text="[*]").wait_for()
    server.kill()
    server.start_again()
    outputs.filter(has_text="CellNotRun: The connection was lost").wait_for(timeout=180_000)
    prompt.filter(has_text="[ ]").wait_for()
    page.evaluate(_WRITE, "print('now it is', runs)")
    lab.start_command("notebook:run-all-cells")
    outputs.filter(has_text="now it is 0").wait_for()


def test_a_cell_that_was_lost_with_its_server_ends_as_not_run_and_can_be_run_again(
    a_mortal_lab: LabProcess, a_page: Page
) -> None:
    path = an_empty_notebook(a_mortal_lab.notebooks, "lost.ipynb", "python3")
    LabPage(a_page).open(a_mortal_lab.lab_url).open_notebook(path, "python3")
    _lose_a_cell(a_page, a_mortal_lab)


def _run_a_cell_while_away(page: Page, server: LabProcess) -> None:
    """Kill the server, run a cell, which waits in the page, and start the server again."""
    prompt = page.locator(".jp-InputPrompt").first
    page.evaluate(_WRITE, "print('before')")
    lab = LabPage(page)
    lab.finish_command("notebook:run-all-cells")
    page.locator(".jp-OutputArea-output").filter(has_text="before").wait_for()
    server.kill()
    page.wait_for_function(f"{_CONNECTION} !== 'connected'")
    page.evaluate(_WRITE, "print('it ran')")
    lab.start_command("notebook:run-all-cells")
    prompt.filter(has_text="[*]").wait_for()
    server.start_again()


def test_a_cell_that_is_run_while_the_server_is_away_runs_once_the_server_is_back(
    a_mortal_lab: LabProcess, a_page: Page
) -> None:
    path = an_empty_notebook(a_mortal_lab.notebooks, "away.ipynb", "python3")
    LabPage(a_page).open(a_mortal_lab.lab_url).open_notebook(path, "python3")
    _run_a_cell_while_away(a_page, a_mortal_lab)
    a_page.locator(".jp-OutputArea-output").filter(has_text="it ran").wait_for(timeout=180_000)
    a_page.locator("#jp-main-statusbar").get_by_text("| Idle").wait_for()


def test_a_cell_that_is_run_while_the_server_is_away_is_not_run_where_the_kernel_is_lost(a_page: Page) -> None:
    with LabProcess(with_aliquot=True, options=("--Aliquot.keep_kernels=never",), port=free_port()) as server:
        path = an_empty_notebook(server.notebooks, "away.ipynb", "python3")
        LabPage(a_page).open(server.lab_url).open_notebook(path, "python3")
        _run_a_cell_while_away(a_page, server)
        outputs = a_page.locator(".jp-OutputArea-output")
        outputs.filter(has_text="CellNotRun: The kernel was lost before this cell").wait_for(timeout=180_000)
        a_page.locator(".jp-InputPrompt").first.filter(has_text="[ ]").wait_for()


@pytest.mark.soak(alone="a long browser test")
def test_a_cell_that_was_lost_with_the_gateway_ends_as_not_run_on_a_users_own_server(
    a_mortal_gateway: GatewayProcess, a_page: Page
) -> None:
    with a_mortal_gateway.lab_of("bob", {}, ("--GatewayClient.gateway_retry_interval=0.25",)) as server:
        path = an_empty_notebook(server.notebooks, "lost.ipynb", "python3")
        LabPage(a_page).open(server.lab_url).open_notebook(path, "python3")
        _lose_a_cell(a_page, a_mortal_gateway)


def _ask(lab: LabProcess, method: str, path: str, body: object = None) -> Any:
    headers = {"Authorization": f"token {lab.token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{lab.url}{path}", data, headers, method=method)) as answer:
        return json.load(answer)
